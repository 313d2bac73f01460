"""Numbers of a network's state that are no choices: dimensions and control steps that the simulator does not have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Margin:
    """A state [S, D] whose first H control steps and first A dimensions are the chunk; the others are the margin.

    The margin is kept beside the choices, R numbers for each of the H control steps, since the network reads it.

    Args:
        chunk: H.
        dims: A.
        steps: S >= H, control steps that the network thinks ahead.
        width: D >= A, dimensions of its actions.
    """

    chunk: int
    dims: int
    steps: int
    width: int

    @property
    def rest(self) -> int:
        """R, numbers of the margin per control step; the last ones are filling."""
        return math.ceil((self.steps * self.width - self.chunk * self.dims) / self.chunk)

    def inside(self, device: torch.device) -> Tensor:
        """[S, D] bool, True for the chunk."""
        steps = torch.arange(self.steps, device=device) < self.chunk
        return steps[:, None] & (torch.arange(self.width, device=device) < self.dims)

    def core(self, state: Tensor) -> Tensor:
        """The chunk [M, H, A] of states [M, S, D]."""
        return state[:, : self.chunk, : self.dims]

    def split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The chunk [M, H, A] and the margin [M, H, R] of states [M, S, D]."""
        around = state.flatten(1)[:, ~self.inside(state.device).flatten()]
        filling = self.chunk * self.rest - around.shape[1]
        return self.core(state), pad(around, (0, filling)).unflatten(1, (self.chunk, self.rest))

    def join(self, chunk: Tensor, rest: Tensor) -> Tensor:
        """States [M, S, D] of chunks [M, H, A] and margins [M, H, R]: the inverse of `split`."""
        state = self.placed(chunk)
        around = ~self.inside(chunk.device).flatten()
        state.flatten(1)[:, around] = rest.flatten(1)[:, : int(around.sum())].to(state.dtype)
        return state

    def placed(self, chunk: Tensor) -> Tensor:
        """States [M, S, D] with zeros around chunks [M, H, A]."""
        return pad(chunk, (0, self.width - self.dims, 0, self.steps - self.chunk))

    def prolonged(self, chunk: Tensor) -> Tensor:
        """States [M, S, D] of demonstrated chunks [M, H, A]: the last action goes on, other dimensions are 0."""
        last = chunk[:, -1:].expand(-1, self.steps - self.chunk, -1)
        return pad(torch.cat([chunk, last], dim=1), (0, self.width - self.dims))
