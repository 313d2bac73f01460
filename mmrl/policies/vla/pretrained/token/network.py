"""What a token VLA on a pretrained vision-language model supplies: scoring and sampling of action tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from mmrl.policies.vla.pretrained.network import PretrainedNetwork

Choose = Callable[[Tensor], Tensor]
"""Chooses ids [R, t] of bins given logits [R, t, B] of the next t actions; called until all T are chosen."""


class Scores(NamedTuple):
    """Logits of T action tokens in N contexts, and the features that the first of them is predicted from."""

    logits: Tensor  # [N, T, B]
    state: Tensor  # [N, width]


class TokenVLANetwork(PretrainedNetwork):
    """Calls a pretrained token VLA. A choice is a bin b of B; the network knows which token stands for it."""

    @classmethod
    @abstractmethod
    def load(cls, path: str, dtype: str, attention: str) -> nn.Module:
        """Load the checkpoint in training mode; refuse missing weights. Arguments as of `TokenVLAPolicy`."""

    @property
    @abstractmethod
    def bins(self) -> int:
        """Return B, the number of action tokens."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Return the width of the language model."""

    @abstractmethod
    def score(self, inputs: Mapping[str, Tensor], chosen: Tensor) -> Scores:
        """Compute the logits of every choice in one pass, given those before it.

        Args:
            inputs: input_ids and attention_mask [N, L], pixel_values [N, cameras, channels, h, w], and "proprio"
                [N, P] where the model reads it.
            chosen: [N, T] bins.
        """

    @abstractmethod
    def sample(self, inputs: Mapping[str, Tensor], owner: Tensor, count: int, choose: Choose) -> Tensor:
        """Let `choose` pick `count` bins in each of R rows, of which row r has context owner[r].

        Returns:
            state [N, width] of the contexts, as of `Scores`.
        """

    @abstractmethod
    def state(self, inputs: Mapping[str, Tensor], count: int) -> Tensor:
        """Compute the state [N, width] of contexts in which `count` bins are to be chosen, as `sample` does."""
