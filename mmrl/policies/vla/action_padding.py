"""Padding dimensions and control steps of a pretrained action head that the simulator does not use."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class ActionPadding:
    """Layout of a padded action state [S, D]: the chunk is H of its control steps and its first A dimensions.

    The other entries are padding, stored beside the actions as R numbers per control step of the chunk, since the
    network reads them.

    Args:
        chunk: H.
        dims: A.
        steps: S >= H, control steps that the network predicts.
        width: D >= A, action dimensions of the network.
        start: first control step of the chunk; earlier ones are those of earlier observations.
    """

    chunk: int
    dims: int
    steps: int
    width: int
    start: int = 0

    @property
    def entries_per_step(self) -> int:
        """R, padding entries per control step of the chunk, rounded up."""
        return math.ceil((self.steps * self.width - self.chunk * self.dims) / self.chunk)

    def inside(self, device: torch.device) -> Tensor:
        """[S, D] bool, True for the chunk."""
        steps = torch.arange(self.steps, device=device) - self.start
        return ((steps >= 0) & (steps < self.chunk))[:, None] & (torch.arange(self.width, device=device) < self.dims)

    def core(self, state: Tensor) -> Tensor:
        """Return the chunk [M, H, A] of states [M, S, D]."""
        return state[:, self.start : self.start + self.chunk, : self.dims]

    def split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Split states [M, S, D] into the chunk [M, H, A] and the padding [M, H, R]."""
        around = state.flatten(1)[:, ~self.inside(state.device).flatten()]
        filling = self.chunk * self.entries_per_step - around.shape[1]
        return self.core(state), pad(around, (0, filling)).unflatten(1, (self.chunk, self.entries_per_step))

    def join(self, chunk: Tensor, rest: Tensor) -> Tensor:
        """Join chunks [M, H, A] and padding [M, H, R] to states [M, S, D]: the inverse of `split`."""
        state = self.pad_zeros(chunk)
        around = ~self.inside(chunk.device).flatten()
        state.flatten(1)[:, around] = rest.flatten(1)[:, : int(around.sum())].to(state.dtype)
        return state

    def pad_zeros(self, chunk: Tensor) -> Tensor:
        """Pad chunks [M, H, A] with zeros to states [M, S, D]."""
        return pad(chunk, (0, self.width - self.dims, self.start, self.steps - self.chunk - self.start))

    def pad_last(self, chunk: Tensor) -> Tensor:
        """Pad demonstrated chunks [M, H, A] to states [M, S, D]: repeat first and last action, other dimensions 0."""
        first = chunk[:, :1].expand(-1, self.start, -1)
        last = chunk[:, -1:].expand(-1, self.steps - self.chunk - self.start, -1)
        return pad(torch.cat([first, chunk, last], dim=1), (0, self.width - self.dims))
