"""Evaluation protocol, hashed: results may be compared only if their hashes are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.types import Episode, Prompt, Sampling, Task
from mmrl.evaluation.held_out import HeldOut
from mmrl.files.atomic import write_file
from mmrl.files.contract import differences
from mmrl.files.strict_json import need_object, quote, read_json_object
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.text.single_turn import SingleTurn

NAME = "protocol.json"


@dataclass(frozen=True)
class Protocol:
    """Protocol of an evaluation: problems, policy and environment.

    Args:
        entries: problems, decodes and evaluators; only these are hashed.
        policy: contract of the policy. It is part of what is measured, so a difference is a warning, not an error.
        environment: versions and devices; a difference is reported.
    """

    entries: dict[str, Any]
    policy: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Hash of the entries, twelve hexadecimal digits."""
        return digest(self.entries)

    def write(self, folder: str | Path) -> Path:
        """Write <folder>/protocol.json, with the hash."""
        return write_file(Path(folder) / NAME, json.dumps({"hash": self.hash, **asdict(self)}, indent=2) + "\n")

    @classmethod
    def read(cls, folder: str | Path) -> Protocol:
        """Read <folder>/protocol.json; refuse a broken or edited file."""
        path, remedy = Path(folder) / NAME, f"measure again: mmrl evaluate {folder}"
        stored, names = read_json_object(path, remedy, finite=False), [each.name for each in fields(cls)]
        protocol = cls(**{name: need_object(stored.get(name), f"{path}: {name}", remedy) for name in names})
        if protocol.hash != stored.get("hash"):
            text = quote(stored.get("hash"))
            raise ValueError(f"{path} says hash {text} and its entries have {protocol.hash}: it was edited; {remedy}")
        return protocol

    def incompatible_entries(self, other: Protocol) -> list[str]:
        """List the entries that differ; results under the two protocols must then not be compared."""
        return differences(other.entries, self.entries, "there", "here")

    def other_differences(self, other: Protocol) -> list[str]:
        """List differences of policy and environment, which do not forbid a comparison."""
        pairs = (("policy", other.policy, self.policy), ("environment", other.environment, self.environment))
        return [
            line for name, reference, here in pairs for line in differences({name: reference}, {name: here}, "there")
        ]


def digest(value: Any) -> str:
    """Hash a plain value to twelve hexadecimal digits, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def describe_evaluation(task: Task, held_out: HeldOut) -> dict[str, Any]:
    """Describe problems, decodes and evaluators: the protocol entries that are known before the evaluation.

    Args:
        task: of the run, on any split.
        held_out: which problems, decodes and draws.
    """
    problems = held_out.select_problems(task)
    indices, settings = held_out.indices(problems), _describe_task(task)
    rollout = _describe_rollout(held_out.rollout)
    return {
        "suite": {"task": task.name, **task.contract(), **({"settings": settings} if settings else {})},
        "problems": {
            "split": held_out.split,
            "offset": held_out.offset,
            "count": len(indices),
            "stream": getattr(task, "seed", None),
            "digest": digest([_plain(problems[index]) for index in indices]),
        },
        "num_samples": held_out.num_samples,
        "draws": held_out.seed,
        **({"rollout": rollout} if rollout else {}),
        "decodes": {name: _settings(sampling) for name, sampling in held_out.sampling.items()},
        "evaluators": {name: _describe(evaluator) for name, evaluator in held_out.evaluators.items()},
    }


_PROBLEMS = ("split", "count", "seed")
"""Settings of a task that say which problems there are; the digest of the problems has them."""


def _describe_task(task: Any) -> dict[str, Any]:
    """Describe the settings of a task that are not those of its class, such as those of its verifier.

    Places of files are left out, and so are simulators, whose contract is beside this.
    """
    if not is_dataclass(task):
        return {}
    settings = {each.name: (getattr(task, each.name), each.default) for each in fields(task) if each.init}
    return {
        name: plain
        for name, (value, default) in settings.items()
        if name not in _PROBLEMS and not name.endswith(("path", "folder")) and value != default
        if (plain := _describe_value(value)) is not None
    }


def _describe_value(value: Any) -> Any:
    """Return a setting as plain values; None for what has none, such as a simulator."""
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): _describe_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_describe_value(each) for each in value]
    return {"task": value.name, **_describe_task(value)} if isinstance(value, Task) else None


_THROUGHPUT = ("bootstrap", "max_concurrent", "max_decisions", "max_envs", "max_failures", "max_timeouts", "threads")
"""Settings of a rollout that change no evaluation, beside time limits."""


def _describe_rollout(rollout: Rollout) -> dict[str, Any]:
    """Describe how problems become episodes: turns, history and tools; empty for one completion or one simulation."""
    settings = {
        name: _describe(value) if is_dataclass(value) else _describe_value(value)
        for name, value in vars(rollout).items()
        if not name.startswith("_") and name not in _THROUGHPUT and not name.endswith("timeout_s")
    }
    plain = {name: value for name, value in settings.items() if value is not None}
    usual = not plain and isinstance(rollout, SingleTurn | EpisodicRollout)
    return {} if usual else {"part": type(rollout).__name__, **plain}


def _settings(sampling: Sampling) -> dict[str, Any]:
    """Return the settings of a decode that are set, so that a new option leaves earlier protocols as they are."""
    return {name: value for name, value in asdict(sampling).items() if value is not None}


def digest_instructions(played: Mapping[str, Sequence[Episode]]) -> dict[str, Any]:
    """Count and hash the instructions in the episodes of each decode."""
    instructions_seen = {
        json.dumps([episode.prompt.key, episode.info["instruction"]])
        for episodes in played.values()
        for episode in episodes
        if "instruction" in episode.info
    }
    different = {json.loads(pair)[1] for pair in instructions_seen}
    return {"different": len(different), "digest": digest(sorted(instructions_seen))}


def _plain(prompt: Prompt) -> list[Any]:
    """Convert a problem to plain values; an image becomes its hash, a video that of its frames with their times."""
    images = [_hash_pixels(image) for image in prompt.images]
    videos = [[_hash_pixels(video.frames), repr(video.metadata())] for video in prompt.videos]
    further = [*([repr(prompt.tools)] if prompt.tools else []), *([videos] if videos else [])]
    return [prompt.key, repr(prompt.messages), images, repr(prompt.answer), repr(sorted(prompt.info.items())), *further]


def _hash_pixels(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:12]


def _describe(evaluator: Any) -> dict[str, Any]:
    """Describe an evaluator and its settings as plain values."""
    settings = asdict(evaluator) if is_dataclass(evaluator) and not isinstance(evaluator, type) else {}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return {"part": type(evaluator).__name__, **plain}
