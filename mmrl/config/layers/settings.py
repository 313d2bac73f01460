"""Where a method is run: the setting of a run, and what changes when a recipe is given a pretrained policy.

A recipe is a method in a setting for a small policy, whose learning rate and lengths would spoil a pretrained one. So
a recipe that is given another setting, or a policy with a path, leaves its numbers behind: its method runs in that
setting, and its task stays, unless the setting or the command line names another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.config.layers.checks import check_layers
from mmrl.config.layers.files import (
    LAYERS,
    RUNS,
    Layer,
    default_choices,
    find_part,
    flatten,
    merge_choices,
    read_layers,
    read_run,
)
from mmrl.config.option_files import find_option, find_options
from mmrl.core.errors import ConfigError

HEADER = "setting"
"""The key of a setting's own words: `weights: pretrained` where its numbers are for pretrained weights, and `numbers:
paper` where those of the method's paper are taken."""
PAPER = "paper_setting"
"""The key of a method with the numbers of its paper, as keys of a run, and `place`, where they stand in it."""
_HEADERS = (("weights", "pretrained"), ("numbers", "paper"))
BUDGET = (
    *("capture", "trainer", "paper", "model.optimizer", "model.scheduler", "model.learning_rates"),
    *(
        f"data.{key}"
        for key in ("num_prompts", "num_minibatches", "update_epochs", "group_size", "sampling.max_tokens")
    ),
    *(f"data.{key}" for key in ("curriculum.count", "replay.capacity", "learning_starts", "gradient_steps")),
    *(f"data.evaluation.{key}" for key in ("count", "interim_count", "sampling")),
    *(f"model.policy.{key}" for key in ("config", "freeze_vision", "hidden", "hidden_layers", "lora", "processor")),
    *(f"model.policy.{key}" for key in ("timesteps_per_sample", "action_dims", "chunk")),
)
"""Keys of the small policy and of the budget, which a recipe leaves behind."""
_NO_GROUP = ("data.group_size", 1)
"""One answer of a prompt is what a method without groups asks for, whatever the budget."""
_SMALL = ("policy", "scheduler", "setting", "method")
"""Groups whose options are those of the small policy; it stays in a setting that names no policy at all."""
_TASK_GROUPS = ("task", "sim", "rollout", "evaluation")
_TASK_KEYS = ("data.task", "data.rollout", "data.evaluation")
_KINDS = {
    "mmrl.policies.text.vision.VisionLanguagePolicy": "pretrained_vlm",
    "mmrl.policies.text.policy.TextPolicy": "pretrained_text",
    "mmrl.policies.text.scorer.ScoringPolicy": "pretrained_scorer",
}
"""Settings of policies that extend a class; the first that fits. All others are robots'."""


@dataclass(frozen=True)
class Setting:
    """What a command line's words about method and setting amount to.

    `words` replace them; `values` are set before those of the command line; `line` tells what was chosen for the user,
    and is empty where nothing was.
    """

    words: list[str]
    values: dict[str, Any] = field(default_factory=dict)
    line: str = ""


def choose_setting(words: Sequence[str]) -> Setting:
    """Replace a recipe by its method and its task where it runs in another setting than its own.

    Args:
        words: key=value, of a command line.

    Raises:
        ConfigError: a setting for small policies is named, and so is a policy with a path; or the numbers of a paper
            are asked for, and its file has none.
    """
    options = {group: option for group, option in _pairs(words) if group in LAYERS and option != "null"}
    files = find_options()
    for group, option in options.items():
        if option.rpartition("/")[2] not in files[group]:
            return Setting(list(words))  # it is refused by name where all options are
    check_layers(options, files)
    layers = read_run({group: option for group, option in options.items() if group != "setting"}, files)
    setting = find_part(layers, "setting")
    choice = options.get("setting", "").rpartition("/")[2] or None
    if choice is None and _is_pretrained(words, layers) and not is_for_pretrained(setting):
        choice = _find_pretrained(words, layers)
    if choice is None:
        return Setting(list(words))
    if _is_pretrained(words, read_layers("setting", choice)) and not is_for_pretrained(choice):
        fit = _find_pretrained(words, layers)
        raise ConfigError(
            f"setting={choice} has the numbers of a small policy with random weights (learning rate, lengths, start), "
            f"which would spoil a pretrained one; take setting={fit}, or setting={_find_paper(fit)}"
        )
    if choice == setting:
        return Setting(list(words))
    method = find_part(layers, "method")
    groups = {group for group, _ in _pairs(words)}
    rest = [word for word in words if word.partition("=")[0] not in LAYERS]
    task, values = _keep_task(layers, choice, groups) if set(options) & set(RUNS) or not options else ([], {})
    values |= _read_numbers(method, choice) if _header(choice).get("numbers") == "paper" else {}
    line = "" if "setting" in options else _explain(options, method, choice, task)
    return Setting([f"method={method}", f"setting={choice}", *task, *rest], values, line)


def drop_headers(keys: dict[str, Any]) -> None:
    """Remove what methods and settings say about themselves from a composed configuration."""
    for name in (HEADER, PAPER):
        keys.pop(name, None)


def read_paper_setting(method: str) -> dict[str, Any]:
    """The block `paper_setting:` of a method's own file; one that it extends is another paper. Empty for none."""
    return dict(read_layers("method", method)[-1].keys.get(PAPER) or {})


def _read_numbers(method: str, setting: str) -> dict[str, Any]:
    block = read_paper_setting(method)
    block.pop("place", None)
    if not block:
        raise ConfigError(
            f"setting={setting}: method={method} has no {PAPER} with numbers of its paper; take a setting "
            "for pretrained weights (`mmrl list settings`), or add the block to the method's file"
        )
    return dict(flatten(block))


def _keep_task(layers: Sequence[Layer], setting: str, choices: set[str]) -> tuple[list[str], dict[str, Any]]:
    """The options and the keys of a recipe that stay: its task, and what it adds to its method.

    None of the task's stay where another task is chosen.
    """
    toy, runs = ([layer for layer in layers if layer.group in groups] for groups in (("setting",), RUNS))
    options = {group: option for group, option in merge_choices(toy).items() if group in _TASK_GROUPS}
    chosen = merge_choices(read_layers("setting", setting))
    dropped = set(_SMALL) - ({"policy"} if not is_for_pretrained(setting) and "policy" not in chosen else set())
    options |= {group: option for group, option in merge_choices(runs).items() if group not in dropped}
    values = {k: v for layer in toy for k, v in flatten(layer.keys) if is_within(k, _TASK_KEYS)}
    values |= {key: value for layer in runs for key, value in flatten(layer.keys)}
    other = chosen.get("task")
    exclusions = choices
    if "task" in choices or (other is not None and other != options.get("task")):
        exclusions = choices | set(_TASK_GROUPS)
    fixed = merge_choices([layer for layer in layers if layer.group == "method"])  # a method's own rollout
    added = merge_choices(runs)
    words = [
        f"{group}={option or 'null'}"
        for group, option in options.items()
        if group not in exclusions and (group in added or group not in fixed)
    ]
    stay = {
        key: value
        for key, value in values.items()
        if not (key.startswith("data.") and exclusions & set(key.split(".")[1:3]))
        and (not is_within(key, BUDGET) or (key, value) == _NO_GROUP)
    }
    return words, stay


def is_within(key: str, parts: Sequence[str]) -> bool:
    """Whether a full key is one of these keys, or below one."""
    return any(key == part or key.startswith(f"{part}.") for part in parts)


def _explain(options: Mapping[str, str], method: str, setting: str, task: Sequence[str]) -> str:
    run = next(
        (f"{group}={options[group]}" for group in RUNS if group in options), f"recipe={default_choices()['recipe']}"
    )
    suffix = f" with {' '.join(task)}" if task else ""
    return (
        f"{run} has the numbers of a small policy; a pretrained one runs method={method} in setting={setting}{suffix}. "
        f"setting=NAME chooses another, setting={_find_paper(setting)} the numbers of the method's paper"
    )


def _is_pretrained(words: Sequence[str], layers: Sequence[Layer]) -> bool:
    """Whether the policy is loaded from a path, by the command line or by the option that it chooses."""
    pairs = dict(_pairs(words))
    path = pairs.get("policy.path", pairs.get("model.policy.path"))
    if path is not None:
        return path not in ("null", "")
    policy = pairs.get("policy")
    if policy is None or policy == merge_choices(layers).get("policy"):
        return False  # a run's own policy is what its numbers are for
    return _policy_key(policy, "path") is not None


def is_for_pretrained(setting: str | None) -> bool:
    """Whether the numbers of a setting are for pretrained weights."""
    return setting is not None and _header(setting).get("weights") == "pretrained"


def _header(setting: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in read_layers("setting", setting):
        header = layer.keys.get(HEADER) or {}
        merged |= header if isinstance(header, dict) else {str(header): None}
    if wrong := [key for key, value in merged.items() if (key, value) not in _HEADERS]:
        raise ConfigError(
            f"{find_option('setting', setting).path}: setting: {wrong[0]}: must be weights: pretrained, where the "
            "numbers are for pretrained weights, or numbers: paper, where those of the method's paper are taken"
        )
    return merged


def _find_pretrained(words: Sequence[str], layers: Sequence[Layer]) -> str:
    """The setting of pretrained policies of this kind, with adapters if the command line or the policy has them."""
    from mmrl.config.signatures import import_class

    pairs = dict(_pairs(words))
    option = pairs.get("policy") or {**default_choices(), **merge_choices(layers)}["policy"]
    path = pairs.get("policy._target_") or _policy_key(str(option), "_target_")
    policy = import_class(path)
    bases = {f"{base.__module__}.{base.__qualname__}" for base in getattr(policy, "__mro__", ())}
    name = next((setting for base, setting in _KINDS.items() if base in bases), "pretrained_vla")
    lora = any(key.startswith(("policy.lora", "model.policy.lora")) and value != "null" for key, value in pairs.items())
    return f"{name}_lora" if lora or _policy_key(str(option), "lora") else name


def _find_paper(pretrained: str) -> str:
    """The setting with the numbers of papers for the same kind of policy."""
    return pretrained.removesuffix("_lora").replace("pretrained", "paper").removesuffix("_text")


def _policy_key(option: str, key: str) -> Any:
    """A key of a policy's option, its own or that of an option that it extends."""
    return next((layer.keys[key] for layer in reversed(read_layers("policy", option)) if key in layer.keys), None)


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return [(key.lstrip("+~"), value) for key, _, value in (word.partition("=") for word in words)]
