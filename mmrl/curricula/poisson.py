"""Poisson sampling of problems, which accountants of differential privacy assume."""

from __future__ import annotations

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.curricula.base import Curriculum


class PoissonSampling(Curriculum):
    """Select every problem of the task with probability count / size, independently of all others and of the past.

    An iteration has data.num_prompts problems on average. Nothing is drawn twice in an iteration: transforms that ask
    for further problems are refused, because an accountant knows one draw per iteration.
    Source: Deep Learning with Differential Privacy, 2016, section 3.1 (lots), arXiv:1607.00133.
    """

    def __init__(self) -> None:
        self._iteration = -1

    def select(self, count: int, ctx: Context) -> list[int]:
        size = len(ctx.task)
        if count > size:
            raise ValueError(
                f"Poisson sampling is asked for {count} problems on average, but task {ctx.task.name!r} has {size}; "
                "lower data.num_prompts"
            )
        if self._iteration == ctx.iteration:
            raise ValueError(
                "data.curriculum is PoissonSampling, which selects once per iteration, and a transform asks for "
                "further problems; leave it out of data.transforms"
            )
        self._iteration = ctx.iteration
        draws = derive_rng("poisson", ctx.seed, ctx.iteration).random(size)
        indices = np.flatnonzero(draws * size < count).tolist()
        if not indices:
            raise ValueError(
                f"Poisson sampling selected no problem in iteration {ctx.iteration}, which happens with probability "
                f"{(1 - count / size) ** size:.1g}; raise data.num_prompts ({count})"
            )
        return indices

    def state_dict(self) -> dict[str, int]:
        return {"iteration": self._iteration}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._iteration = state["iteration"]
