"""`mmrl new method|recipe|task|reward|sim NAME`: write files that work, to be changed, and a test of them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from mmrl.commands.new.files import Files, check_module, write_files
from mmrl.commands.new.method import plan_method, plan_recipe
from mmrl.config.option_files import groups
from mmrl.core.errors import ConfigError
from mmrl.runs.writable import writable

_LONGEST = 60
"""Letters of a name; it is part of several files' names."""
_SHORT = "trainer.max_epochs=2"
"""What makes the run that is printed a short one."""
_USAGE = "give a kind and a name, as in `mmrl new task backwards`; `mmrl new --help` has the kinds"


def new(arguments: Sequence[str]) -> None:
    """Write the files of a kind below the working directory; none is overwritten."""
    if len(arguments) < 2 or arguments[0] not in KINDS:
        raise ConfigError(f"{' '.join(arguments) or 'nothing given'}: {_USAGE}")
    kind, name, *rest = arguments
    _check_name(kind, name)
    files = KINDS[kind](name, _read_options(kind, rest))
    with writable(Path.cwd(), "mmrl new"):
        paths = write_files(files)
    for path in paths:
        print(path)
    tests = [path.parent.as_posix() for path in paths if path.name.startswith("test_")]
    test = f"python -m pytest {tests[0]} -k {name} && " if tests else ""
    print(f"try: {test}{files.command} {_SHORT}")


def _read_options(kind: str, rest: Sequence[str]) -> dict[str, str]:
    """The words KEY=VALUE after the name."""
    options = dict(word.partition("=")[::2] for word in rest)
    examples = OPTIONS.get(kind, {})
    for key in options:
        if kind == "recipe" and key in ("slot", "part"):
            raise ConfigError(f"{key}: a recipe has no part; `mmrl new method NAME {key}=...` writes one and a recipe")
        if key not in examples:
            words = " ".join(f"{name}={value}" for name, value in examples.items())
            raise ConfigError(f"{key}: unknown option; a {kind} has {words or 'none'}")
    if empty := [key for key, value in options.items() if not value]:
        raise ConfigError(f"{empty[0]}: give a value, as in {empty[0]}={examples[empty[0]]}")
    if not options.get("part", "A").isidentifier():
        raise ConfigError(f"part={options['part']}: must be the name of a class, such as PlainGradient")
    return options


def _check_name(kind: str, name: str) -> None:
    if len(name) > _LONGEST:
        raise ConfigError(f"{name[:40]}... has {len(name)} letters, more than {_LONGEST}; choose a shorter name")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r}: a name has lower-case letters, digits and underscores, and begins with a letter")
    if name in groups().get(kind, ()):
        raise ConfigError(f"there is a {kind} {name!r} already (`mmrl list {kind}`); choose another name")


def _plan_reward(name: str, options: Mapping[str, str]) -> Files:
    return Files(
        {f"{name}.py": "reward.py", f"tests/test_{name}.py": "reward_test.py", "conftest.py": "conftest.py"},
        {"module": check_module(name), "name": name},
        f"mmrl fit recipe=grpo reward={name}.py:{name}",
    )


def _plan_option(group: str, file: str, recipe: str, name: str, options: Mapping[str, str]) -> Files:
    """A class in a file of <group>s/<name>, and the option of the group that names it."""
    return Files(
        {
            f"{group}s/{name}/{file}.py": f"{group}.py",
            f"conf/{group}/{name}.yaml": f"{group}.yaml",
            f"tests/test_{name}.py": f"{group}_test.py",
            "conftest.py": "conftest.py",
        },
        {
            "module": f"{group}s.{name}.{file}",
            "name": name,
            "part": "".join(map(str.capitalize, name.split("_"))),
        },
        f"mmrl fit recipe={recipe} {group}={name}",
    )


KINDS: dict[str, Callable[[str, Mapping[str, str]], Files]] = {
    "method": plan_method,
    "recipe": plan_recipe,
    "task": partial(_plan_option, "task", "task", "grpo"),
    "reward": _plan_reward,
    "sim": partial(_plan_option, "sim", "env", "ppo_control"),
}
OPTIONS = {
    "method": {"theme": "THEME", "slot": "term|annotator|weighting", "part": "CLASS", "setting": "SETTING"},
    "recipe": {"method": "METHOD", "setting": "SETTING"},
}
"""Words after the name, by kind."""
