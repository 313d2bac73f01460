"""Inputs of a checkpoint as its own processor computes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from mmrl.policies.processor import Processor


class PretrainedReading(ABC):
    """Inputs of a checkpoint as its own processor computes them: tokens, pixels, units.

    Args:
        path: hub id or folder of the checkpoint.
        reader: hub id or folder of tokenizer and image processor; None for the checkpoint's own.
        cameras: names of the images of an observation, in the order in which the model reads them.
    """

    @abstractmethod
    def __init__(self, path: str, reader: str | None, cameras: Sequence[str]): ...

    @property
    @abstractmethod
    def pad_id(self) -> int:
        """Id that pads shorter instructions; the attention mask excludes it."""

    @abstractmethod
    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L] of a prompt, which may have the normalised proprioception [P] in it."""

    @abstractmethod
    def pixels(self, images: Tensor) -> Tensor:
        """Normalise uint8 images [N, cameras, H, W, 3] to pixels [N, cameras, 3, h, w], on their device."""

    @abstractmethod
    def units(self) -> Processor | None:
        """Return the checkpoint's statistics as a `policy.processor`; None if it has none."""

    @abstractmethod
    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save tokenizer, image settings and statistics in the checkpoint's own format, after `PretrainedNetwork.save`.

        Args:
            folder: that has the model.
            units: `policy.processor`.
            proprio_dims: length of the proprioception vector.
            action_dims: A, numbers per control step.
        """
