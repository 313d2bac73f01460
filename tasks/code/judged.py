"""Base of tasks whose answers are programs: the programs of all episodes are judged together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode, Prompt
from tasks.answers import AnswerTask


@dataclass(frozen=True, kw_only=True)
class JudgedPrograms(AnswerTask):
    """Task whose verifier runs several programs at a time, and reports on each run in the episode's info."""

    @abstractmethod
    def judge_all(
        self, answers: Sequence[str], prompts: Sequence[Prompt]
    ) -> list[tuple[dict[str, float], dict[str, Any]]]:
        """Return the scores of each answer, and what is to know about its run."""

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        answers = [self.read_answer(episode) for episode in episodes]
        judged = self.judge_all([answer or "" for answer in answers], [episode.prompt for episode in episodes])
        for episode, (_, info) in zip(episodes, judged):
            episode.info.update(info)
        return [{**self.score_format(answer), **scores} for answer, (scores, _) in zip(answers, judged)]
