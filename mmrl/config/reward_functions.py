"""The top-level key `reward`: functions of the user, or an option of conf/rewards, in place of data.reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from mmrl.config.option_files import find_rewards
from mmrl.config.overrides import quote
from mmrl.config.paths import resolve_functions
from mmrl.core.errors import ConfigError
from mmrl.core.function_path import FORMS

KEY = "reward"
_PART = "data.reward"
_CLASS = "mmrl.rewards.function.FunctionReward"
_EVALUATORS = {
    "reward": {"_target_": "mmrl.evaluation.metrics.means.MeanReward"},
    "scores": {"_target_": "mmrl.evaluation.metrics.means.MeanScores"},
}
"""Held-out numbers of a run with reward functions, beside those of its evaluation."""


def replace_reward(cfg: DictConfig, arguments: Sequence[str]) -> None:
    """Replace data.reward, with its weights, by what the key `reward` names, and remove the key.

    `reward` is an option of conf/rewards, a path of a function, a list of paths, or a mapping with `functions`.
    Arguments as reward.weights.NAME=0.1 apply to what it names.

    Args:
        cfg: composed; changed in place.
        arguments: of the command line.
    """
    value: Any = OmegaConf.to_container(cfg).get(KEY)  # type: ignore[union-attr]
    with open_dict(cfg):
        cfg.pop(KEY, None)
    pairs = list(_read_arguments(arguments))
    if value is None or any(key in ("", "_target_") for key, _ in pairs):  # another part in place of data.reward
        return
    option = find_rewards().get(value) if isinstance(value, str) else None
    if option is not None:
        part: Any = OmegaConf.load(option.path)
    else:
        part = OmegaConf.create(dict(value) if isinstance(value, dict) else {"functions": value})
    for key, argument in sorted(pairs, key=lambda pair: not pair[0].endswith("._target_")):
        node, _, name = key.rpartition(".")
        if name == "_target_":  # another class, which takes other arguments
            OmegaConf.update(part, node, {name: argument}, merge=False, force_add=True)
        else:
            is_part = isinstance(argument, dict) and "_target_" in argument
            OmegaConf.update(part, key, argument, merge=not is_part, force_add=True)
    if option is None:
        part = _read_functions(part, value)
    with open_dict(cfg):
        cfg.data.reward = part
        evaluators = OmegaConf.select(cfg, "data.evaluation.evaluators")
        if evaluators is not None:
            evaluators.update({name: spec for name, spec in _EVALUATORS.items() if name not in evaluators})


def _read_functions(part: Any, value: Any) -> dict[str, Any]:
    """The reward of the functions that a configuration names."""
    paths = part.get("functions")
    paths = [paths] if isinstance(paths, str) else paths
    if isinstance(value, str) and ":" not in value:
        raise ConfigError(f"reward={value}: name a function as {FORMS}, or one of {', '.join(find_rewards())}")
    if not isinstance(paths, list | ListConfig) or not paths or not all(isinstance(path, str) for path in paths):
        raise ConfigError(f"reward={value}: name one function or a list of them, as {FORMS}")
    part.functions = resolve_functions(paths, KEY)
    return {"_target_": _CLASS, **part}


def _read_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The keys below data.reward that arguments set, and their values; "" is data.reward itself."""
    parser = OverridesParser.create()
    for argument in arguments:
        name, equals, _ = argument.lstrip("+~").partition("=")
        key = name.removeprefix("data.")
        if equals and (key.startswith(f"{KEY}.") or name == _PART):
            yield key.removeprefix(KEY).removeprefix("."), parser.parse_override(quote(argument)).value()
