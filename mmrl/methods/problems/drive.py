"""DRIVE: train on all problems first, then on shrinking sets of the hardest ones with larger groups.

DRIVE: Data Curation Best Practices for Reinforcement Learning with Verifiable Reward in Competitive Code Generation,
2025, arXiv:2511.06307.

- the problems with the lowest success rates: `select_hardest`
- uniform problems, then phases whose sets shrink: `HardestPhases`
- few completions at first and many later: `group_size` as a schedule `mmrl.schedules.Piecewise(steps=True)`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.types import Context, Episode
from mmrl.curricula.base import Curriculum
from mmrl.curricula.cycle import take_cyclically
from mmrl.curricula.history import PromptHistory
from mmrl.curricula.sampler import Shuffled


def select_hardest(rates: Mapping[int, float], keep: float) -> list[int]:
    """Return the problems with the lowest success rates, lowest first; those of equal rates keep their order.

    Source: DRIVE, 2025, hard-focus curriculum, arXiv:2511.06307.

    Args:
        rates: by problem.
        keep: number of problems, or below 1 their fraction, rounded up.
    """
    count = math.ceil(round(keep * len(rates), 9)) if keep < 1 else int(keep)  # 0.07 * 100 is 7.000000000000001
    return sorted(rates, key=rates.__getitem__)[:count]


class HardestPhases(Curriculum):
    """Select shuffled problems at first, then in phases ever fewer of the hardest ones, repeated in order.

    At the first iteration of a phase the problems of the phase before are ranked by their success rate at the last
    visit, those of the first phase among all that were visited. Of equal rates the harder one of the last ranking comes
    first, at first the one with the lower index. Source: DRIVE, 2025, two-stage RL, arXiv:2511.06307; its second stage
    begins with 175 chosen problems and trains on the hardest 72, 50 and 25.

    Args:
        phases: by first iteration, the number of problems, or below 1 their fraction of the set before.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, phases: Mapping[int, float], score_name: str = "reward"):
        self.phases = dict(sorted(phases.items()))
        if not phases or min(phases) < 1:
            raise ValueError(f"curriculum.phases must begin at iteration 1 or later, got {dict(phases)}")
        if any(keep <= 0 or (keep >= 1 and keep != int(keep)) for keep in phases.values()):
            raise ValueError(
                f"curriculum.phases must name whole numbers of problems or fractions below 1, got {dict(phases)}"
            )
        self.history, self._shuffled = PromptHistory(score_name), Shuffled()
        self._phase = 0  # phases begun
        self.chosen: list[int] = []  # hardest first, as they were ranked
        self._position = 0  # in `chosen`

    def select(self, count: int, ctx: Context) -> list[int]:
        starts = [start for start in self.phases if start <= ctx.iteration]
        if not starts:
            return self._shuffled.select(count, ctx)
        for start in starts[self._phase :]:
            self._begin(start)
        problems, self._position = take_cyclically(self.chosen, self._position, count)
        return problems

    def _begin(self, start: int) -> None:
        """Rank the problems of the phase before and keep the hardest."""
        pool = self.chosen or sorted(self.history.rates)
        hardest = select_hardest({index: self.history.rates[index][-1] for index in pool}, self.phases[start])
        if not pool or len(pool) < self.phases[start] or (self.chosen and len(hardest) == len(pool)):
            raise ValueError(
                f"curriculum.phases: {self.phases[start]:g} problems are to be kept from iteration {start} on, of "
                f"{len(pool)}; the sets must shrink, so lower the number, or raise data.num_prompts"
            )
        self.chosen, self._position, self._phase = hardest, 0, self._phase + 1

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        self.history.observe(groups)

    def state_dict(self) -> dict[str, Any]:
        places = {"phase": self._phase, "chosen": list(self.chosen), "position": self._position}
        return {**self.history.state_dict(), **places, "shuffled": self._shuffled.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.load_state_dict(state)
        self._shuffled.load_state_dict(state["shuffled"])
        self._phase, self.chosen, self._position = state["phase"], list(state["chosen"]), state["position"]
