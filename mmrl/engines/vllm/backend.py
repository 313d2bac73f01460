"""Where a vLLM runs: in this process or in servers. The engine above it is the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    kept: tuple[tuple[int, ...], ...] | None = None  # per token the ids that truncation kept
    version: int | None = None  # of the weights, as the engine reports it
    error: str = ""  # what went wrong, when ended is "error"


@dataclass(frozen=True)
class Held:
    """What an engine says that it holds."""

    version: int
    fingerprint: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Per tensor of the running model: sum and sum of squares, in float64. Fused tensors go by their fused name."""


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
    def held(self) -> Held: ...

    def sleep(self) -> None:
        """Give up accelerator memory until the next `generate` or `push`, where that is possible."""

    @abstractmethod
    def close(self) -> None: ...
