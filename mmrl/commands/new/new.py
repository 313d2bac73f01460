"""`mmrl new task|reward|recipe|sim NAME`: write files that work, to be changed, and a test of them."""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template

from mmrl.config.option_files import CONF, groups
from mmrl.errors import ConfigError
from mmrl.runs.writable import writable

_TEMPLATES = Path(__file__).parent / "templates"
_LONGEST = 60
"""Letters of a name; it is part of several files' names."""
_USAGE = "give a kind and a name, as in `mmrl new task backwards`; `mmrl new --help` has the kinds"


@dataclass(frozen=True)
class Slot:
    """How a recipe uses a new part of one kind, and the list of the law tests that holds an example of it."""

    use: str
    examples: str


SLOTS = {
    "term": Slot("model: {objective: {terms: {policy: null, $name: {_target_: $module.$part}}}}", "TERMS"),
    "annotator": Slot("data: {pipeline: [$name], annotators: {$name: {_target_: $module.$part}}}", "ANNOTATORS"),
    "weighting": Slot("data: {weighting: {_target_: $module.$part}}", "WEIGHTINGS"),
}


@dataclass(frozen=True)
class Files:
    """Templates by the path that each is written to, what the templates name, and a command to try."""

    templates: dict[str, str]
    words: dict[str, str]
    command: str


def new(arguments: Sequence[str]) -> None:
    """Write the files of a kind below the working directory; none is overwritten."""
    if len(arguments) < 2 or arguments[0] not in KINDS:
        raise ConfigError(f"{' '.join(arguments) or 'nothing given'}: {_USAGE}")
    kind, name, *rest = arguments
    _check_name(kind, name)
    options = dict(word.partition("=")[::2] for word in rest)
    if wrong := [key for key in options if kind != "recipe" or key not in ("slot", "part")]:
        raise ConfigError(f"{wrong[0]}: unknown option; a recipe has slot={'|'.join(SLOTS)} and part=CLASS")
    files = KINDS[kind](name, options.get("part") or "".join(map(str.capitalize, name.split("_"))), options)
    with writable(Path.cwd(), "mmrl new"):
        paths = _write(files)
    for path in paths:
        print(path)
    print(f"try: python -m pytest tests, and {files.command}")


def _check_name(kind: str, name: str) -> None:
    if len(name) > _LONGEST:
        raise ConfigError(f"{name[:40]}... has {len(name)} letters, more than {_LONGEST}; choose a shorter name")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r}: a name has lower-case letters, digits and underscores, and begins with a letter")
    if name in groups().get(kind, ()):
        raise ConfigError(f"there is a {kind} {name!r} already (`mmrl list {kind}`); choose another name")


def _plan_reward(name: str, part: str, options: dict[str, str]) -> Files:
    return Files(
        {f"{name}.py": "reward.py", f"tests/test_{name}.py": "reward_test.py", "conftest.py": "conftest.py"},
        {"module": _check_module(name), "name": name},
        f"mmrl fit recipe=grpo reward={name}.py:{name}",
    )


def _plan_option(group: str, file: str, recipe: str, name: str, part: str, options: dict[str, str]) -> Files:
    """A class in a file of <group>s/<name>, and the option of the group that names it."""
    return Files(
        {
            f"{group}s/{name}/{file}.py": f"{group}.py",
            f"conf/{group}/{name}.yaml": f"{group}.yaml",
            f"tests/test_{name}.py": f"{group}_test.py",
            "conftest.py": "conftest.py",
        },
        {"module": f"{group}s.{name}.{file}", "name": name, "part": part},
        f"mmrl fit recipe={recipe} {group}={name}",
    )


def _plan_recipe(name: str, part: str, options: dict[str, str]) -> Files:
    """A recipe and a part of its own; in a checkout of mmrl with an experiment, and the part's row in the laws."""
    slot = options.get("slot", "term")
    if slot not in SLOTS:
        raise ConfigError(f"slot={slot}: must be one of {', '.join(SLOTS)}")
    inside = _is_checkout()
    module = f"mmrl.methods.{name}" if inside else _check_module(name)
    words = {"module": module, "name": name, "part": part}
    words["use"] = Template(SLOTS[slot].use).substitute(words)
    folder = "tests/methods" if inside else "tests"
    templates = {
        f"conf/recipe/{name}.yaml": "recipe.yaml",
        f"{module.replace('.', '/')}.py": f"{slot}.py",
        f"{folder}/test_{name}.py": f"{slot}_test.py",
        **({f"conf/experiment/{name}.yaml": "experiment.yaml"} if inside else {"conftest.py": "conftest.py"}),
    }
    return Files(templates, words, f"mmrl fit recipe={name}")


KINDS: dict[str, Callable[[str, str, dict[str, str]], Files]] = {
    "task": partial(_plan_option, "task", "task", "grpo"),
    "reward": _plan_reward,
    "recipe": _plan_recipe,
    "sim": partial(_plan_option, "sim", "env", "ppo_control"),
}


def _check_module(name: str) -> str:
    """Refuse the name of a module that Python has already: the file would not be found under it."""
    if not Path(f"{name}.py").exists() and importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name}.py would have the name of a module that is there already; choose another name")
    return name


def _is_checkout() -> bool:
    return Path("conf").resolve() == CONF


def _write(files: Files) -> list[Path]:
    paths = {Path(path): template for path, template in files.templates.items()}
    if there := [str(path) for path in paths if path.exists() and path.name != "conftest.py"]:
        raise ConfigError(f"there is {', '.join(there)} already; choose another name")
    written = []
    for path, template in paths.items():
        if path.exists():
            continue
        text = (_TEMPLATES / f"{template}.txt").read_text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(files.words) if "$" in text else text)
        written.append(path)
    slot = next((slot for slot in SLOTS if f"{slot}.py" in paths.values()), None)
    if slot is not None and _is_checkout():
        laws = Path("tests/laws/law_examples.py")
        laws.write_text(_add_example(laws.read_text(), files.words, SLOTS[slot].examples))
        written.append(laws)
    return written


def _add_example(text: str, words: dict[str, str], examples: str) -> str:
    """Add an import and an example to the law tests."""
    module, part = words["module"], words["part"]
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("from mmrl."))
    after = [i for i in range(first, len(lines)) if lines[i].startswith("from mmrl.") and lines[i].split()[1] < module]
    lines.insert(after[-1] + 1 if after else first, f"from {module} import {part}\n")
    example = f"{examples} = [\n    Example({part}()),\n"
    return re.sub(rf"^{examples} = \[\n", example, "".join(lines), count=1, flags=re.MULTILINE)
