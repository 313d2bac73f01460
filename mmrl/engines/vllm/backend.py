"""Interface of vLLM backends: vLLM in this process, or in servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.types import Ended


@dataclass(frozen=True)
class EnginePrompt:
    """One request to vLLM."""

    ids: tuple[int, ...]  # token ids with ONE placeholder token per image; vLLM expands it
    images: tuple[np.ndarray, ...]  # uint8 [H, W, C], in the order of the placeholders
    seed: int  # 64-bit


@dataclass(frozen=True)
class EngineSampling:
    """Sampling parameters, the same for all prompts of a call."""

    temperature: float
    top_k: int  # 0 disables it
    top_p: float
    min_p: float
    max_tokens: int
    greedy: bool
    stop: tuple[str, ...]  # stop strings
    stop_ids: tuple[int, ...]  # ids that end a completion
    forbidden: tuple[int, ...]  # ids that may not be drawn; log-probs are of the distribution without them
    support: int  # number of kept ids to report per token of truncated sampling; 0 for none
    guide: str | None = None  # that completions match, as the text of `Sampling.guide`
    scores_prompt: bool = False  # report the log-prob of every prompt token too


@dataclass(frozen=True)
class EngineOutput:
    """Completion of one prompt."""

    prompt_ids: tuple[int, ...]  # as vLLM ran them, placeholders expanded
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # nats, of the sampling distribution (after temperature and truncation)
    ended: Ended
    support_ids: tuple[tuple[int, ...], ...] | None = None  # per token, the ids that truncation kept
    version: int | None = None  # of the weights, as vLLM reports it
    error: str = ""  # the reason, when ended is "error"
    prompt_logprobs: tuple[float, ...] = ()  # nats, of every prompt token but the first, if they were asked for


@dataclass(frozen=True)
class HeldTensor:
    """One tensor of the running model."""

    sum: float  # in float64, computed by `mmrl.engines.vllm.weights.fingerprint`
    squares: float  # sum of the squares
    count: int  # number of elements
    dtype: str  # as torch names it


@dataclass(frozen=True)
class EngineWeights:
    """Weights that a running vLLM reports."""

    version: int
    tensors: dict[str, HeldTensor]  # by vLLM's names: fused tensors by the fused name, tied ones by each name
    parts: dict[str, tuple[str, ...]]  # by vLLM's name, the transferred tensors that it was made of
    ignored: tuple[str, ...] = ()  # tensors of the last transfer that the model ignores

    @classmethod
    def read(cls, reply: Mapping[str, Any], version: int) -> EngineWeights:
        """Build from a worker's answer to `mmrl_report_weights` and vLLM's own weight version."""
        loaded = reply["version"]
        if loaded is not None and loaded != version:
            raise EngineFailure(f"vLLM names its weights {version}, but its worker has loaded {loaded}")
        return cls(
            version=version,
            tensors={
                name: HeldTensor(float.fromhex(t["sum"]), float.fromhex(t["squares"]), t["count"], t["dtype"])
                for name, t in reply["tensors"].items()
            },
            parts={name: tuple(parts) for name, parts in reply["parts"].items()},
            ignored=tuple(reply["ignored"]),
        )


class EngineFailure(RuntimeError):
    """vLLM died, refused a model, or does not answer; the message names the cause and the remedy."""


class Backend(ABC):
    """One vLLM instance, or a pool of equal ones; `start`, `push` and `report_weights` are called by every rank."""

    in_process: bool = False
    """Whether every rank has an instance of its own, in its process."""

    thread_obstacle: str | None = None
    """As `mmrl.engines.base.Engine.thread_obstacle`."""

    takes_tensors: bool = False
    """Whether whole weights are sent by `load`, block by block, and not as a file by `push`."""

    @abstractmethod
    def start(self, folder: Path, version: int) -> None:
        """Load the checkpoint in `folder`, which must exist until `close`. Raises EngineFailure with the reason."""

    @abstractmethod
    def generate(self, prompts: Sequence[EnginePrompt], drawing: EngineSampling) -> list[EngineOutput]:
        """Generate one output per prompt, in order. A failed prompt has `ended` "error"; a dead engine raises."""

    @abstractmethod
    def push(self, weights: Path, version: int) -> None:
        """Load the tensors of a safetensors file (checkpoint names), and reset every cache of older weights."""

    def load(self, blocks: Any, version: int) -> Any:
        """Load the tensors of a `WeightBlocks` and reset every cache; returns their `SentWeights`. Collective."""
        raise NotImplementedError

    @abstractmethod
    def report_weights(self) -> EngineWeights | None:
        """Return the weights that it holds; None on ranks that use the instances of another rank."""

    def sleep(self) -> None:
        """Release accelerator memory until the next `generate` or `push`, where that is possible."""

    @abstractmethod
    def close(self) -> None: ...
