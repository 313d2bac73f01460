"""VRAG-RL: search for rendered pages, look at boxes of them closely, and pay for structure, answer and ranking.

VRAG-RL: Empower Vision-Perception-Based RAG for Visually Rich Information Understanding via Iterative Reasoning with
Reinforcement Learning, 2025, arXiv:2505.22019.

- crops of the last page at its full resolution: `mmrl.tools.views.Crop` beside an `ImageSource`
- a row a turn, whose context has the images: `mmrl.rollouts.text.tools.ToolUse`
- r = f if f <= 0, else .7 judge + .1 f + .2 NDCG: `PageReward`
- what the judge is asked: `AnswerVerdict`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode, Task
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.base import JudgeForm, LanguageJudge
from mmrl.rewards.judges.pointwise import Pointwise
from mmrl.rewards.judges.reward import JudgeReward
from mmrl.rewards.measures import ndcg

SUCCEEDED = ("ok", "truncated")  # outcomes of calls whose result the policy read


@dataclass(frozen=True)
class AnswerVerdict(Pointwise):
    """Score `judge` of an answer: 1 if a judge finds that it means what the right answer means, 0 if not.

    Source: VRAG-RL, 2025, arXiv:2505.22019: a language model compares with the reference answer.
    """

    instruction: str = "Does the answer to the question mean what the reference means? Grade it 1 if it does, else 0."
    high: float = 1.0
    reference: bool = True


class PageReward(JudgeReward):
    """Reward of an episode: its structure f where f <= 0, else sum_k weights_k * scores_k.

    structure: 1 if the episode ended by itself and every turn before its answer was a call that returned a result, else
    0. ndcg: of the pages in the order in which they were found, beside a ranking that begins with all pages that the
    answer needs. judge: its verdict on the answer.

    Source: VRAG-RL, 2025, arXiv:2505.22019; released code (Alibaba-NLP/VRAG): reward_manager/rm.py.

    Args:
        judge: who answers.
        form: what it is asked about the answer.
        weights: by name of the score.
        max_failed: share of the episodes of an iteration that may be without a verdict; with more the run ends.
        tool: name of the search, whose notes list the pages in their order.
        needed: key of `Prompt.info` whose value lists the pages that the answer needs.
    """

    def __init__(
        self,
        judge: LanguageJudge,
        form: JudgeForm,
        weights: dict[str, float],
        max_failed: float = 0.5,
        tool: str = "search",
        needed: str = "pages",
    ):
        super().__init__(judge, form, weights, max_failed)
        self.tool, self.needed = tool, needed

    def check_task(self, task: Task) -> None:
        """Refuse prompts that do not say which pages they need."""
        super().check_task(task)
        self._list_needed(Episode(task[0], 0, 0))

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        judged = super().scores(episodes)  # an episode without a verdict has no score
        return [scores and {**scores, **self._score(episode)} for episode, scores in zip(episodes, judged)]

    def _score(self, episode: Episode) -> dict[str, float]:
        outcomes = [outcome for *_, outcome in episode.info.get("calls", ())]
        is_whole = episode.ended == "done" and all(outcome in SUCCEEDED for outcome in outcomes)
        ranking = self._list_found(episode)
        return {"structure": float(is_whole), "ndcg": ndcg(ranking, dict.fromkeys(self._list_needed(episode), 1.0))}

    def _list_needed(self, episode: Episode) -> list[Any]:
        prompt = episode.prompt
        needed = prompt.info.get(self.needed)
        if not isinstance(needed, list | tuple) or not needed:
            raise ValueError(
                f"{prompt.place or prompt.key}: info {self.needed!r} must list the pages that the answer needs, got "
                f"{needed!r}; set reward.needed to the column that has them"
            )
        return list(needed)

    def _list_found(self, episode: Episode) -> list[Any]:
        notes = episode.info.get("notes", {})
        if self.tool not in notes:
            raise ValueError(
                f"reward.tool={self.tool!r} is no tool of the rollout, which has {sorted(notes)}; name the search, "
                "whose notes list the pages"
            )
        return list(notes[self.tool]["pages"])

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        sums = WeightedSum(self.weights)(group)
        structures = [episode.scores["structure"] for episode in group]
        return [total if structure > 0 else structure for total, structure in zip(sums, structures)]
