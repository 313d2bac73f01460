"""What a flow VLA on a pretrained vision-language model supplies: its two halves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.pretrained.network import PretrainedNetwork


class Sizes(NamedTuple):
    """Sizes of a checkpoint."""

    horizon: int  # S, control steps that the model predicts
    action_dims: int  # D, action dimensions of the model
    state_dims: int  # longest proprioception vector
    context_width: int  # width of the vision-language model
    expert_width: int  # width of the action expert


class ContextEncoding(NamedTuple):
    """Encoding of N contexts, images and words, by the vision-language model."""

    mask: Tensor  # [N, L] nonzero at real tokens
    layers: Sequence[Tensor]  # keys and values of every layer in turn, each [N, L, groups, d] or [N, groups, L, d]
    hidden: Tensor | None  # [N, L, context_width] features of the context's tokens; None where they were not kept


class FlowVLANetwork(PretrainedNetwork):
    """Calls the two halves of a flow VLA: the vision-language model reads the context, the expert predicts velocities.

    Time is 1 at the noise and 0 at the action; the velocity is noise - action.
    """

    tokens_axis: ClassVar[int] = 1  # of keys and values

    @classmethod
    @abstractmethod
    def load(cls, path: str, reader: str | None, horizon: int | None, dtype: str, attention: str) -> nn.Module:
        """Load the checkpoint in training mode; refuse missing weights. Arguments as of `FlowVLAPolicy`."""

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """Return the sizes of the checkpoint."""

    @property
    @abstractmethod
    def context(self) -> nn.Module:
        """Return the vision-language model."""

    @abstractmethod
    def read(self, inputs: Mapping[str, Tensor]) -> ContextEncoding:
        """Encode images and words; every trainable weight must be in the graph of keys and values.

        Args:
            inputs: input_ids and attention_mask [N, L], pixel_values [N, cameras, 3, h, w].
        """

    @abstractmethod
    def add_state(self, context: ContextEncoding, state: Tensor) -> Prefix:
        """Return what the expert reads: keys and values of every layer, the mask of real tokens and the state.

        Args:
            context: of `read`, or the same tokens at other places of their rows.
            state: proprioception [N, P], at most `sizes.state_dims` numbers.
        """

    @abstractmethod
    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Compute features [M, S, expert_width] of the action tokens from noisy actions x [M, S, D] at times [M]."""

    @abstractmethod
    def velocity(self, features: Tensor) -> Tensor:
        """Compute the velocity [M, S, D] from the features of the action tokens."""
