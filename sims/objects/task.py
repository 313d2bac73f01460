"""ObjectRewardTask: a simulator with object-centric states, whose training is paid by a written relational reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.tools.programs.objects import ObjectProgram, relation_question, reward_question
from mmrl.tools.programs.traces import Trace
from sims.written.task import WrittenRewardTask


@dataclass(frozen=True)
class ObjectRewardTask(WrittenRewardTask):
    """As `WrittenRewardTask`; the program has relational functions and `reward(objects, prev_objects)`.

    A `write` stage of rounds asks for the functions first and for the reward then. Source: OCALM, 2024,
    arXiv:2406.16748.

    Args:
        source: the program itself, in place of a file.
        bound: largest absolute reward of a decision.
        describe_properties: tell the writer what the properties of objects mean.
    """

    source: str | None = None
    bound: float = 1.0
    describe_properties: bool = True

    def build_program(self, source: str, name: str = "reward.py") -> ObjectProgram:
        return ObjectProgram(source, name, self.unsafe, self.bound)

    def _read_program(self) -> tuple[str, str] | None:
        if self.source is not None and self.program is not None:
            raise ValueError("task.source and task.program are both given; leave one of them out")
        return super()._read_program() if self.source is None else (self.source, "task.source")

    def first_questions(self, goal: str, traces: Sequence[Trace]) -> list[dict[str, str]]:
        """The questions before the program: relations, whose functions stand before it, then the reward."""
        state: Mapping[str, Any] = traces[0].steps[0][0]
        return [relation_question(self.name, goal, state, self.describe_properties), reward_question(self.bound)]
