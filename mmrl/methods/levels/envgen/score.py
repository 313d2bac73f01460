"""EnvGen's measurements: success of every skill with its error, and the score of a game over all skills.

EnvGen, 2024, arXiv:2403.12014; the score: Benchmarking the Spectrum of Agent Capabilities (Crafter), 2021,
arXiv:2109.06780, section 4.1.

- score of a game: `game_score`
- success of one skill: `SkillSuccess`
- the evaluator: `GameScore`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p, nan, sqrt

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score

SKILL = "skill/"
"""Before the name of a skill in the scores of an episode: whether it succeeded."""


def game_score(percent: Sequence[float]) -> float:
    """exp(mean_k ln(1 + s_k)) - 1 of the success rates s_k of all skills, in percent.

    Source: arXiv:2109.06780, section 4.1.
    """
    return exp(sum(log1p(rate) for rate in percent) / len(percent)) - 1


@dataclass
class SkillSuccess:
    """Episodes in which a skill was tried, and in which it succeeded."""

    episodes: int = 0
    successes: int = 0

    @property
    def rate(self) -> float:
        """Share of the episodes with success; 0 without any."""
        return self.successes / self.episodes if self.episodes else 0.0

    @property
    def error(self) -> float:
        """Standard error of the share, sqrt(p (1 - p) / n); 1/2 without an episode."""
        return sqrt(self.rate * (1 - self.rate) / self.episodes) if self.episodes else 0.5


@dataclass(frozen=True)
class GameScore(Evaluator):
    """`game_score` over the scores `skill/...` of the finished episodes, in percent, and `errors`, those left out."""

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        if not valid:
            return {"score": nan, "errors": count_errors(episodes)}
        names = sorted({name for episode in valid for name in episode.scores if name.startswith(SKILL)})
        if not names:
            raise KeyError(f"the episode of {valid[0].prompt.key!r} has no scores {SKILL}NAME; take sim=craft_worlds")
        rates = [100 * sum(get_score(episode, name) for episode in valid) / len(valid) for name in names]
        return {"score": game_score(rates), "errors": count_errors(episodes)}
