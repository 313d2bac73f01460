"""Interface to a running vLLM: in this process or in servers. The engine above it is the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.types import Ended


@dataclass(frozen=True)
class EnginePrompt:
    """One request in the engine's words."""

    ids: tuple[int, ...]  # token ids with ONE placeholder token per image; vLLM expands it
    images: tuple[np.ndarray, ...]  # uint8 [H, W, C], in the order of the placeholders
    seed: int  # 64-bit


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn, the same for all prompts of a call."""

    temperature: float
    top_k: int  # 0 keeps all
    top_p: float
    min_p: float
    max_tokens: int
    greedy: bool
    stop: tuple[str, ...]  # written strings
    stop_ids: tuple[int, ...]  # ids that end a completion
    forbidden: tuple[int, ...]  # ids that may not be drawn; log-probs are of the distribution without them
    support: int  # how many kept ids to report per token for truncated sampling; 0 for none


@dataclass(frozen=True)
class EngineOutput:
    """What came back for one prompt."""

    prompt_ids: tuple[int, ...]  # as the engine ran them, placeholders expanded
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # nats, of the distribution that was drawn from (after temperature and truncation)
    ended: Ended
    support_ids: tuple[tuple[int, ...], ...] | None = None  # per token the ids that truncation kept
    version: int | None = None  # of the weights, as the engine reports it
    error: str = ""  # what went wrong, when ended is "error"


@dataclass(frozen=True)
class HeldTensor:
    """One tensor of the running model."""

    sum: float  # in float64, as `mmrl.engines.vllm.fingerprint` adds it up
    squares: float  # sum of the squares
    count: int  # numbers in it
    dtype: str  # as torch names it


@dataclass(frozen=True)
class EngineWeights:
    """What an engine says that it holds."""

    version: int
    tensors: dict[str, HeldTensor]  # by the engine's names: fused ones by their fused name, tied ones by each name
    parts: dict[str, tuple[str, ...]]  # the tensors of the last transfer that a held one is made of
    ignored: tuple[str, ...] = ()  # tensors of the last transfer that the model does not look at

    @classmethod
    def read(cls, reply: Mapping[str, Any], version: int) -> EngineWeights:
        """From a worker's answer to `mmrl_report_weights` and vLLM's own weight version."""
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
    """The engine cannot go on: it died, refused a model, or does not answer. Says what and what to do."""


class Backend(ABC):
    """One vLLM, or a pool of equal ones."""

    @abstractmethod
    def start(self, folder: Path, version: int) -> None:
        """Load the checkpoint in `folder`; it is there until `close`. Raises EngineFailure with the reason."""

    @abstractmethod
    def generate(self, prompts: Sequence[EnginePrompt], drawing: Drawing) -> list[EngineOutput]:
        """One output per prompt, in order. A prompt that fails comes back as "error"; a dead engine raises."""

    @abstractmethod
    def push(self, weights: Path, version: int) -> None:
        """Load the tensors of a safetensors file (checkpoint names) and forget every cache made with older ones."""

    @abstractmethod
    def report_weights(self) -> EngineWeights: ...

    def sleep(self) -> None:
        """Give up accelerator memory until the next `generate` or `push`, where that is possible."""

    @abstractmethod
    def close(self) -> None: ...
