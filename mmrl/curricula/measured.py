"""Problems that are chosen by scores which the first iterations measure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode
from mmrl.curricula.base import Curriculum
from mmrl.curricula.cycle import take_cyclically
from mmrl.curricula.history import PromptHistory
from mmrl.curricula.sampler import Shuffled


class MeasuredChoice(Curriculum):
    """Selects problems in shuffled order to measure their scores, chooses among them once, and repeats those chosen.

    Put `DropMeasuring` into data.transforms, so that nothing is learned while the start is measured.

    Args:
        measure_iterations: at the beginning.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, measure_iterations: int, score_name: str = "reward"):
        check_at_least(1, "curriculum", measure_iterations=measure_iterations)
        self.measure_iterations = measure_iterations
        self.history, self._measured = PromptHistory(score_name), Shuffled()
        self.chosen: list[int] = []  # empty while measuring
        self._position = 0

    @abstractmethod
    def choose(self, scores: Mapping[int, float], ctx: Context) -> list[int]:
        """Choose problems by the mean score of each that was measured; at least one.

        Raises:
            ValueError: there is none to choose, or there are too few.
        """

    def select(self, count: int, ctx: Context) -> list[int]:
        if ctx.iteration < self.measure_iterations:
            return self._measured.select(count, ctx)
        if not self.chosen:
            rates = sorted(self.history.rates.items())
            self.chosen = self.choose({index: sum(values) / len(values) for index, values in rates}, ctx)
        problems, self._position = take_cyclically(self.chosen, self._position, count)
        return problems

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        if not self.chosen:
            self.history.observe(groups)

    def state_dict(self) -> dict[str, Any]:
        progress = {"chosen": list(self.chosen), "position": self._position}
        return {**self.history.state_dict(), **progress, "measured": self._measured.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.load_state_dict(state)
        self._measured.load_state_dict(state["measured"])
        self.chosen, self._position = list(state["chosen"]), state["position"]
