"""What a flow VLA on a pretrained vision-language model supplies: its two halves, its inputs and its file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.policies.processor import Processor
from mmrl.policies.vla.chain import Prefix


class Sizes(NamedTuple):
    """Sizes of a checkpoint."""

    horizon: int  # S, control steps that the model predicts
    action_dims: int  # D, action dimensions of the model
    state_dims: int  # longest proprioception vector
    context_width: int  # width of the vision-language model
    expert_width: int  # width of the action expert


class Context(NamedTuple):
    """Encoding of N contexts by the vision-language model."""

    prefix: Prefix  # what the expert reads: keys and values of every layer and the mask of real tokens, each [N, ...]
    hidden: Tensor  # [N, L, context_width] features of the context's tokens
    mask: Tensor  # [N, L] nonzero at real tokens


class FlowVLANetwork(ABC):
    """Calls the two halves of a flow VLA: the vision-language model reads the context, the expert predicts velocities.

    Time is 1 at the noise and 0 at the action; the velocity is noise - action.

    Args:
        model: of `load`. Adapters are injected into its modules later.
    """

    def __init__(self, model: Any):
        self.model = model

    @classmethod
    @abstractmethod
    def load(cls, path: str, reader: str | None, horizon: int | None, dtype: str, attention: str) -> nn.Module:
        """Load the checkpoint in training mode; refuse missing weights. Arguments as of `FlowVLAPolicy`."""

    @staticmethod
    @abstractmethod
    def save(model: Any, folder: Path) -> None:
        """Save a model (of `load`, adapters merged) in the checkpoint's own format."""

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """Return the sizes of the checkpoint."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights."""

    @property
    @abstractmethod
    def context(self) -> nn.Module:
        """Return the vision-language model."""

    @property
    @abstractmethod
    def vision(self) -> Sequence[nn.Module]:
        """Return the image encoder and its projection."""

    @property
    def unused(self) -> Sequence[nn.Module]:
        """Return modules whose weights no pass reads; they stay fixed."""
        return ()

    @abstractmethod
    def read(self, inputs: Mapping[str, Tensor], state: Tensor) -> Context:
        """Encode the context; every trainable weight must be in the graph of the prefix.

        Args:
            inputs: input_ids and attention_mask [N, L], pixel_values [N, cameras, 3, h, w].
            state: proprioception [N, P], at most `sizes.state_dims` numbers.
        """

    @abstractmethod
    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Compute features [M, S, expert_width] of the action tokens from noisy actions x [M, S, D] at times [M]."""

    @abstractmethod
    def velocity(self, features: Tensor) -> Tensor:
        """Compute the velocity [M, S, D] from the features of the action tokens."""

    @abstractmethod
    def enable_gradient_checkpointing(self) -> None:
        """Recompute layers in the backward pass instead of storing their activations."""


class FlowVLAReading(ABC):
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
    def ids(self, instruction: str) -> Tensor:
        """Return token ids [L] of an instruction."""

    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L] of a prompt that may have the normalised proprioception [P] in it."""
        return self.ids(instruction)

    @abstractmethod
    def pixels(self, images: Tensor) -> Tensor:
        """Normalise uint8 images [N, cameras, H, W, 3] to pixels [N, cameras, 3, h, w], on their device."""

    @abstractmethod
    def units(self) -> Processor | None:
        """Return the checkpoint's statistics as a `policy.processor`; None if it has none."""

    @abstractmethod
    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save tokenizer, image settings and statistics in the checkpoint's own format, after `FlowVLANetwork.save`.

        Args:
            folder: that has the model.
            units: `policy.processor`.
            proprio_dims: length of the proprioception vector.
            action_dims: A, numbers per control step.
        """
