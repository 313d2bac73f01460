"""`mmrl completion`: a script for bash or zsh, which asks mmrl for the candidates of each word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from mmrl.commands import COMMANDS
from mmrl.commands.catalogue.listing import DESCRIPTIONS, PARTS, plural
from mmrl.commands.evaluation.arguments import OPTIONS
from mmrl.commands.help.jobs import JOBS
from mmrl.commands.help.usage import PLAN_OPTIONS
from mmrl.commands.new.new import KINDS
from mmrl.commands.options import CONVERT_OPTIONS, RECORD_OPTIONS, ROBOT_OPTIONS, SERVE_OPTIONS, WEIGHTS_OPTIONS
from mmrl.commands.show import OPTIONS as SHOW_OPTIONS
from mmrl.config.compose import PLAIN, ROOTS, SHORT, compose, groups
from mmrl.core.errors import ConfigError

SCRIPTS = {
    "bash": r"""_mmrl() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }"
    COMPREPLY=($(mmrl completion line "$line" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
    if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then  # bash replaces what follows the = alone
        COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
    fi
}
complete -o default -F _mmrl mmrl
""",
    "zsh": r"""_mmrl() {
    local -a candidates
    candidates=("${(@f)$(mmrl completion line "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    compadd -S '' -- ${(M)candidates:#*[=./]}
    compadd -- ${candidates:#*[=./]}
    [[ -n $candidates ]] || _files
}
compdef _mmrl mmrl
""",
}
_CHOICES = {
    "video": ("true", "false"),
    "trust": ("true", "false"),
    "overwrite": ("true", "false"),
    "write": ("true", "false"),
    "split": ("train", "held_out"),
    "decode": ("sample", "argmax", "mean"),
    "checkpoint": ("last", "start"),
    "guide": ("true", "false"),
    "clock": ("system", "simulated"),
    "takeover": ("expert",),
}


def print_completion(arguments: Sequence[str]) -> None:
    """Print the script of a shell; `line TEXT` prints the candidates for the last word of a command line."""
    if len(arguments) == 2 and arguments[0] == "line":
        print("\n".join(complete(arguments[1])))
    elif len(arguments) == 1 and arguments[0] in SCRIPTS:
        print(SCRIPTS[arguments[0]], end="")
    else:
        raise ConfigError(f"name one shell, bash or zsh, got {list(arguments)}; see `mmrl completion --help`")


def complete(line: str) -> list[str]:
    """Candidates for the last word of a command line, each a whole word; none where files are meant."""
    *before, last = line.split(" ")
    before = [word for word in before if word][1:]  # without mmrl
    if not before:
        candidates: Sequence[str] = (*COMMANDS, "help", "--help", "--version")
    elif "=" in last:
        key = last.partition("=")[0]
        candidates = [f"{key}={choice}" for choice in _complete_value(key, before)]
    else:
        candidates = _complete_key(last, before)
    return sorted({candidate for candidate in candidates if candidate.startswith(last)})


def _complete_key(last: str, before: Sequence[str]) -> list[str]:
    """Arguments without a value so far: keys up to the next dot, names and run folders."""
    command, *arguments = before
    if command in ("help", "--help"):
        return [*JOBS, *COMMANDS]
    # commands that take the keys of a configuration
    if command == "fit":
        return [*_configuration_keys(last, arguments), "trust=", "overwrite=", "--config", "--print_config", "--help"]
    if command == "plan":
        return [*_configuration_keys(last, arguments), *PLAN_OPTIONS, "--json", "--config", "--help"]
    if command == "doctor":
        return [*_configuration_keys(last, arguments), "--timeout", *PLAN_OPTIONS[:3], "--help"]
    # commands that take the folder of a run
    if command == "evaluate":
        folders = [] if arguments else find_run_folders()
        return [*folders, *(f"{name}=" for name in OPTIONS), *(f"{slot}." for slot in (*SHORT, *ROOTS)), "--help"]
    if command in ("chat", "push", "serve", "robot"):
        options = {
            "chat": ("checkpoint=", "decode=", "seed="),
            "push": ("repo=", "private=", "endpoint=", "--dry-run"),
            "serve": tuple(f"{name}=" for name in SERVE_OPTIONS),
            "robot": tuple(f"{name}=" for name in ROBOT_OPTIONS),
        }
        return [*([] if arguments else find_run_folders()), *options[command], "--help"]
    if command == "compare":
        return [*find_run_folders(), "metric=", "out=", "level=", "tasks=", "--help"]
    if command == "weights":
        return [*find_run_folders(), *(f"{name}=" for name in WEIGHTS_OPTIONS), "--help"]
    if command == "show":
        folders = [] if arguments else find_run_folders()
        return [*folders, "failures", "--html", "--help", *(f"{name}=" for name in SHOW_OPTIONS)]
    # commands that take names
    if command == "list":
        described = {form: group for group in DESCRIPTIONS for form in (group, plural(group))}
        if arguments:
            return groups()[described[arguments[0]]] if arguments[0] in described else []
        return list(map(plural, (*groups(), *PARTS)))
    if command == "data":
        options = {"record": (*RECORD_OPTIONS, "sim"), "inspect": ("out", "write"), "convert": CONVERT_OPTIONS}
        return [f"{name}=" for name in options.get(arguments[0], ())] if arguments else [*options, "--help"]
    if command in ("new", "completion") and not arguments:
        return list(KINDS if command == "new" else SCRIPTS)
    return []


def _complete_value(key: str, before: Sequence[str]) -> Sequence[str]:
    if before[0] in ("fit", "plan", "doctor", "evaluate", "data") and key in groups():
        return groups()[key]
    if key in ("run", "compare"):
        return [*find_run_folders(), "start"] if key == "compare" else find_run_folders()
    return _CHOICES.get(key, ())


def _configuration_keys(last: str, arguments: Sequence[str]) -> list[str]:
    """Groups and top-level keys; after a dot the keys of the configuration that the arguments so far compose."""
    head, _, _ = last.rpartition(".")
    if not head:
        return [*(f"{name}=" for name in (*groups(), *PLAIN)), *(f"{slot}." for slot in (*SHORT, *ROOTS))]
    slot, _, rest = head.partition(".")
    full = f"{SHORT.get(slot, slot)}.{rest}".rstrip(".")
    try:
        node = OmegaConf.select(
            compose([word for word in arguments if "=" in word]), full, throw_on_resolution_failure=False
        )
    except ConfigError:
        return []
    if not OmegaConf.is_dict(node):
        return []
    names = [str(name) for name in node if name != "_target_"]
    return [f"{head}.{name}{'.' if OmegaConf.is_dict(node._get_node(name)) else '='}" for name in names]


def find_run_folders() -> list[str]:
    """Folders below runs/ that hold a run."""
    patterns = ("*/config.yaml", "*/*/config.yaml", "*/*/*/config.yaml")
    return sorted(str(file.parent) for pattern in patterns for file in Path("runs").glob(pattern))
