"""What every VLA on a pretrained vision-language model supplies: its file format and the parts that can be frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn


class PretrainedNetwork(ABC):
    """Calls a pretrained model.

    Args:
        model: of the subclass's `load`. Adapters are injected into its modules later.
    """

    def __init__(self, model: Any):
        self.model = model

    @staticmethod
    @abstractmethod
    def save(model: Any, folder: Path) -> None:
        """Save a model (of `load`, adapters merged) in the checkpoint's own format."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights."""

    @property
    @abstractmethod
    def vision(self) -> Sequence[nn.Module]:
        """Return the image encoder and its projection."""

    @property
    def unused(self) -> Sequence[nn.Module]:
        """Return modules whose weights no pass reads; they stay fixed."""
        return ()

    @property
    def whole(self) -> Sequence[nn.Module]:
        """Return modules that get no adapters: all their weights are trained."""
        return ()

    @abstractmethod
    def enable_gradient_checkpointing(self) -> None:
        """Recompute layers in the backward pass instead of storing their activations."""
