"""ReLIFT: RL interleaved with supervised fine-tuning on the questions that whole groups fail.

Learning What Reinforcement Learning Can't: Interleaved Online Fine-Tuning for Hardest Questions, 2025,
arXiv:2506.07527.

- a queue of questions that a whole group failed, and their demonstrations when it is full: `HardQuestionBuffer`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import FIRST_ADDED_GROUP, Context, Episode, Turn
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.base import StatefulTransform


@dataclass(frozen=True)
class HardQuestionBuffer(StatefulTransform):
    """Queues the questions on which all completions fail, and adds their demonstrations when `size` are waiting.

    A question is hard if the score of every completion is `fail_value`. Hard questions of all processes enter a
    first-in, first-out queue in the order of their groups. In an iteration in which at least `size` are waiting, the
    first `size` leave it, and the task's demonstration of each is one more episode, a group of its own whose row is
    `is_demo`. Train it with `NegativeLogLikelihood` under `objective.row_masks`. The sampled episodes stay as they are.
    Source: ReLIFT, 2025, algorithm 1, arXiv:2506.07527.

    Args:
        size: demonstrations at a time.
        score_name: "reward", or the name of a score.
        fail_value: score of a failure; a completion with another score, such as that of a right format, is none.
    """

    size: int = 128
    score_name: str = "exact"
    fail_value: float = 0.0
    _waiting: list[int] = field(default_factory=list, init=False, repr=False)  # indices of the task's problems

    def __post_init__(self) -> None:
        check_at_least(1, "hard_question_buffer", size=self.size)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        hard = [
            (slot, group[0].prompt.index)
            for slot, group in groups.items()
            if all(get_score(episode, self.score_name) == self.fail_value for episode in group)
        ]
        # all processes have the same queue; each adds its share of the demonstrations
        self._waiting.extend(index for _, index in sorted(ctx.collector.gather(hard)))
        indices: list[int] = []
        if len(self._waiting) >= self.size:
            indices = self._waiting[: self.size]
            del self._waiting[: self.size]
        local_indices = list(enumerate(indices))[ctx.rank :: ctx.world_size]
        return [*episodes, *(self._demonstrate(place, index, ctx) for place, index in local_indices)]

    def _demonstrate(self, place: int, index: int, ctx: Context) -> Episode:
        prompt = ctx.task[index]
        ((raw, output),) = ctx.task.demonstrations([prompt])[0]
        done = demonstration(raw, output, ctx)
        return Episode(prompt, FIRST_ADDED_GROUP + place, 0, [Turn(done)], source="demo")

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting[:] = state.get("waiting", [])
