"""`mmrl new method` and `mmrl new recipe`: what a paper says, the part that it adds, and its name for `mmrl fit`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from string import Template

from mmrl.commands.new.files import Files, check_module, is_checkout
from mmrl.config.option_files import find_options
from mmrl.core.errors import ConfigError

SLOTS = {
    "term": """model:
  objective:
    terms:
      policy: null # takes the loss of the base out; without this line $name is added to it
      $name: {_target_: $module.$part}""",
    "annotator": "data: {pipeline: [$name], annotators: {$name: {_target_: $module.$part}}}",
    "weighting": "data: {weighting: {_target_: $module.$part}}",
}
"""How a method uses a new part of one kind."""
_YAML_ALONE = "# TODO: the keys that the paper changes, such as data: {update_epochs: 2}"
_SETTING = "sums"


def plan_method(name: str, options: Mapping[str, str]) -> Files:
    """A method and a recipe of it in a setting; with a slot or a part, also the part's module and a test.

    Args:
        name: of the files.
        options: theme, slot, part and setting.
    """
    theme, slot = options.get("theme", ""), options.get("slot", "term" if "part" in options else "")
    if slot and slot not in SLOTS:
        raise ConfigError(f"slot={slot}: must be one of {', '.join(SLOTS)}")
    inside = is_checkout()
    _check_theme(theme, needed=inside)
    _check_free("recipe", name)
    method = f"{theme}/{name}" if theme else name
    words = {"method": name, "setting": _check_option("setting", options.get("setting", _SETTING)), "use": _YAML_ALONE}
    recipe = f"conf/recipe/{method if inside else name}.yaml"
    templates = {f"conf/method/{method}.yaml": "method.yaml", recipe: "recipe.yaml"}
    if slot:
        module = f"mmrl.methods.{theme}.{name}" if inside else check_module(name)
        part = options.get("part") or "".join(map(str.capitalize, name.split("_")))
        words |= {"module": module, "name": name, "part": part}
        words["use"] = Template(SLOTS[slot]).substitute(words)
        folder = f"tests/methods/{theme}" if inside else "tests"
        templates |= {f"{module.replace('.', '/')}.py": f"{slot}.py", f"{folder}/test_{name}.py": f"{slot}_test.py"}
        templates |= {} if inside else {"conftest.py": "conftest.py"}
    return Files(templates, words, f"mmrl fit recipe={name}")


def plan_recipe(name: str, options: Mapping[str, str]) -> Files:
    """A method in a setting, by one name.

    Args:
        name: of the file.
        options: method and setting, of mmrl or of the working directory.
    """
    for group in ("method", "setting"):
        if group not in options:
            raise ConfigError(f"{group}=NAME is missing: a recipe is a method in a setting; `mmrl list {group}`")
    words = {group: _check_option(group, options[group]) for group in ("method", "setting")}
    theme = f"{Path(find_options()['method'][words['method']].name).parent}/" if is_checkout() else ""
    return Files({f"conf/recipe/{theme}{name}.yaml": "recipe.yaml"}, words, f"mmrl fit recipe={name}")


def _check_option(group: str, option: str) -> str:
    """The name of an option without its folder; one that is not there is refused."""
    files = find_options()[group]
    name = option.rpartition("/")[2]
    if name not in files or option not in (name, files[name].name):
        near = difflib.get_close_matches(name, files, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{group}={option}: no such {group}.{hint} `mmrl list {group}` says what each is")
    return name


def _check_free(group: str, name: str) -> None:
    if name in find_options()[group]:
        raise ConfigError(f"there is a {group} {name!r} already (`mmrl list {group}`); choose another name")


def _check_theme(theme: str, needed: bool) -> None:
    themes = {file.name.rpartition("/")[0] for file in find_options()["method"].values()} - {""}
    themes |= {folder.name for folder in Path("conf/method").glob("*/")}
    if (not theme and needed) or (theme and theme not in themes):
        wrong = f"theme={theme}: no such theme" if theme else "theme=THEME is missing"
        raise ConfigError(f"{wrong}; it is one of {', '.join(sorted(themes))}, or a new folder of conf/method")
