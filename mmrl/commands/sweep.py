"""The Hydra entry points: one command, several runs. `scripts/train.py` and `scripts/evaluate.py` are thin over this.

A user types the same words as for `mmrl fit` and `mmrl evaluate`, and Hydra's own flags beside them; with --multirun
a value may be a sweep such as seed=0,1,2 or policy=tiny_text,text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mmrl.config.compose import SHORT, groups, hydra_words
from mmrl.errors import ConfigError

_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--experimental-rerun", "--info", "-i")
_MANY = ("--multirun", "-m")


def train_words(words: Sequence[str]) -> list[str]:
    """Words of `scripts/train.py` as Hydra takes them: short keys spelled out, a folder for each job."""
    out = []
    for word in words:
        if _is_hydras(word):
            out.append(word)
            continue
        key, _, value = word.partition("=")
        for choice in _choices(key, value):
            hydra_words([f"{key}={choice}"])  # refuses an unknown option, each of a sweep
        out.append(_rewritten(word))
    folder = next((word.partition("=")[2] for word in words if word.startswith("run_dir=")), None)
    return _quiet(out, folder or f"runs/sweep/{time.strftime('%Y%m%d-%H%M%S')}", words)


def evaluate_words(words: Sequence[str]) -> list[str]:
    """Words of `scripts/evaluate.py` as Hydra takes them: run=FOLDER, the options, and keys of the run."""
    out = []
    for word in words:
        hydras = _is_hydras(word) or "=" not in word
        out.append(word if hydras or not word.partition("=")[0].partition(".")[2] else f"++{word}")
    return _quiet(out, f"runs/sweep/{time.strftime('%Y%m%d-%H%M%S')}", words)


def job_words(overrides: Sequence[str]) -> list[str]:
    """One job's overrides as a user would have typed them for `mmrl fit`."""
    out = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        full = sorted(SHORT.items(), key=lambda pair: -len(pair[1]))
        short = next((s + key.removeprefix(f) for s, f in full if key.startswith(f"{f}.")), key)
        out.append(f"{short}={value}")
    return out


def job_folder(given: str | None, sweep: str | None, number: int | None) -> str | None:
    """Where a job writes: its own folder below the sweep's; a single run keeps the one that it was given."""
    return given if sweep is None else f"{sweep}/{number}"


def plain_words(cfg: DictConfig) -> list[str]:
    """A composed evaluation as words of `mmrl evaluate`: nested keys with dots, what is null left out."""
    flat = _flat(OmegaConf.to_container(cfg, resolve=True), "")  # type: ignore[arg-type]
    run = flat.pop("run")
    return [str(run), *(f"{key}={_word(value)}" for key, value in flat.items() if value is not None)]


def _flat(node: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in node.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_hydras(word: str) -> bool:
    if word in _WITH_VALUE:
        raise ConfigError(f"write {word} and its value as one argument, {word}=VALUE")
    return word.startswith(("-", "hydra.", "hydra/", "+hydra", "++hydra"))


def _choices(key: str, value: str) -> list[str]:
    """The options that a sweep over a group names; Hydra's functions, such as glob(*), are left to Hydra."""
    if key not in groups() or "(" in value:
        return []
    return value.split(",")


def _rewritten(word: str) -> str:
    key, _, _ = word.partition("=")
    return word if key in groups() else hydra_words([word])[0]


def _quiet(out: list[str], folder: str, words: Sequence[str]) -> list[str]:
    """Keep Hydra from making folders of its own beside the run's; what the user says about them wins."""
    defaults = {"hydra.output_subdir": "null", "hydra.run.dir": ".", "hydra/job_logging": "none"}
    if any(word in _MANY for word in words):
        defaults |= {"hydra.sweep.dir": folder, "hydra.sweep.subdir": "'${hydra:job.num}'"}
    given = {word.partition("=")[0].lstrip("+") for word in words}
    return [*out, *(f"{key}={value}" for key, value in defaults.items() if key not in given)]
