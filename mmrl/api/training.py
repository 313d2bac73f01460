"""Train from Python, by the code of `mmrl fit`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mmrl.api import objects
from mmrl.api.environments import sim_words
from mmrl.api.problems import task_words
from mmrl.api.run import Run
from mmrl.api.words import to_text, to_words
from mmrl.config.compose import PLAIN, compose
from mmrl.errors import ConfigError
from mmrl.rewards.base import Reward


def fit(*overrides: str | Path, **keys: Any) -> Run:
    """Train a policy as `mmrl fit` does, with the same checks, run folder and warm-start stages.

    Args:
        overrides: `key=value` words of the command line, which have the last word over `keys`; or the config.yaml of a
            run, whose settings are used again.
        keys: top-level keys and their values: the name of an option (recipe="grpo"), a mapping of further keys
            (trainer={"max_epochs": 5}), or an object in the part's place: task= a Task or a list of problems, reward= a
            Reward or a function (completion, answer) -> float, sim= a Sim, a gymnasium id or a function that makes an
            environment, policy= a Policy, objective={"terms": {"mine": a Term}}, and so on for every part.
            run_dir, ckpt_path, seed, overwrite and trust as on the command line.

    Raises:
        ConfigError: a word, value or file cannot be used; the message names it and the remedy.
        KeyboardInterrupt: Ctrl-C ended the run after its iteration, with a checkpoint. SIGTERM raises SystemExit(143).
    """
    from mmrl.commands.fit import fit as command

    words = _words(overrides, keys)
    kept = [word for word in words if objects.is_kept(word)]
    if kept:
        _refuse_stages(words)
    try:
        folder = command(words)
    except SystemExit as error:
        if kept:
            print("The run has objects of this program: to resume it, run the program with ckpt_path", file=sys.stderr)
        if error.code == 128 + signal.SIGINT:
            raise KeyboardInterrupt from error
        raise
    if folder is None:
        raise ConfigError("--print_config prints a configuration and trains nothing; use the command `mmrl fit`")
    return Run(folder)


def _words(overrides: Sequence[str | Path], keys: Mapping[str, Any]) -> list[str]:
    given = [str(word) for word in overrides]
    if given and given[0].endswith((".yaml", ".yml")) and "=" not in given[0]:
        return _file_words(given, keys)
    words = [word for key, value in keys.items() for word in _WORDS.get(key, _key_words)(key, value)] + given
    if any(word.startswith("reward.function=") for word in words) and _has_evaluation(words):
        words.append("+evaluation.evaluators.reward._target_=mmrl.evaluation.metrics.means.MeanReward")
    return words


def _file_words(words: list[str], keys: Mapping[str, Any]) -> list[str]:
    """--key=value words beside the configuration file that is the first word."""
    plain = {"seed_everything" if key == "seed" else key: value for key, value in keys.items() if value is not None}
    for key, value in plain.items():
        if not isinstance(value, str | Path | int | float):
            raise ConfigError(f"{key}: beside {words[0]} only single values can be given, as in run_dir=...")
    given = [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in plain.items()]
    return [f"--config={words[0]}", *(word if word.startswith("--") else f"--{word}" for word in words[1:]), *given]


def _has_evaluation(words: Sequence[str]) -> bool:
    return OmegaConf.select(_compose(words), "data.evaluation.evaluators") is not None


def _compose(words: Sequence[str]) -> DictConfig:
    return compose([word for word in words if word.partition("=")[0] not in ("trust", "overwrite")])


def _refuse_stages(words: Sequence[str]) -> None:
    """Refuse warm-start stages that need an object which exists in this process alone: each runs in one of its own."""
    cfg = _compose(words)
    start = OmegaConf.select(cfg, "trainer.callbacks.warm_start") or {}
    kept = [word for word in start.get("common") or () if objects.is_kept(word)]
    stages = [name for name, stage in (start.get("stages") or {}).items() if stage is not None]
    has_weights = OmegaConf.select(cfg, "model.policy.path") is not None or cfg.get("ckpt_path") is not None
    if kept and stages and not has_weights:
        key = kept[0].partition("=")[0].removesuffix("._target_")
        raise ConfigError(
            f"the warm-start stages {stages} run in processes of their own, which do not have the object of {key}: "
            "define its class in a module that can be imported, or leave the stages out with "
            "trainer.callbacks.warm_start.stages=null"
        )


def _key_words(key: str, value: Any) -> Iterator[str]:
    """The words of a top-level key: a text names an option of a group."""
    if isinstance(value, Path) or (isinstance(value, str) and key in PLAIN):
        yield f"{key}={to_text(str(value))}"
    elif isinstance(value, str):
        yield f"{key}={value}"
    else:
        yield from to_words(key, value)


def _reward_words(key: str, value: Any) -> Iterator[str]:
    """A Reward as a part; a function of (completion, answer) as FunctionReward."""
    if isinstance(value, Reward) or not callable(value):
        yield from _key_words(key, value)
        return
    path = objects.import_path(value) or objects.keep_function(value)
    yield "data.reward=null"
    yield "reward._target_=mmrl.rewards.function.FunctionReward"
    yield f"reward.function={path}"


_WORDS: dict[str, Callable[[str, Any], Iterator[str]]] = {
    "reward": _reward_words,
    "task": task_words,
    "sim": sim_words,
}
