"""Rollouts of a fixed horizon whose episodes begin at the prompts that the curriculum selected."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.env.fixed_horizon import FixedHorizon

log = logging.getLogger(__name__)


class CurriculumFixedHorizon(FixedHorizon):
    """As `FixedHorizon`; every new episode begins at a prompt that the curriculum selected for the iteration.

    The k-th episode that environment i begins in an iteration is prompt k num_envs + i, modulo their number: what an
    environment plays does not depend on the others. Prompts that no environment needs are not played. Several processes
    make the run of one; `num_envs` and `data.num_prompts` must be multiples of their number. Arguments are those of
    FixedHorizon.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._prompts: list[Prompt] = []  # of this iteration and process
        self._begun: Counter[int] = Counter()  # episodes that each environment began in this iteration
        self._said = False  # whether it was said that there are too few prompts

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self.num_envs % ctx.world_size or ctx.num_prompts % ctx.world_size:
            raise ValueError(
                f"rollout.num_envs={self.num_envs} and data.num_prompts={ctx.num_prompts} must be multiples of the "
                f"{ctx.world_size} processes, so that each environment finds its prompts"
            )
        self._prompts, self._begun = [prompt for _, prompt in prompts], Counter()
        if not self._env_steps and self._env is None:  # the first prompts are the environments' first initial states
            self._begun.update(range(min(len(self._prompts), self.num_envs // ctx.world_size)))
        episodes = super().collect(prompts, ctx)
        most = max(self._begun.values(), default=0)
        if most * self.num_envs > ctx.num_prompts and not self._said:
            self._said = True
            log.warning(
                "an environment began %d episodes in iteration %d, more than it has prompts, so it played some twice; "
                "set data.num_prompts=%d",
                most,
                ctx.iteration,
                most * self.num_envs,
            )
        return episodes

    def _episode_seed(self, w: int, ctx: Context, following: int = 0) -> int:
        number, envs = self._begun[w], self.num_envs // ctx.world_size
        self._begun[w] += 1
        return self._prompts[(number * envs + w) % len(self._prompts)].info["seed"]
