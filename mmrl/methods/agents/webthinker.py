"""WebThinker: preference pairs of search trajectories by rules in order: right, then fewer calls, then shorter.

WebThinker: Empowering Large Reasoning Models with Deep Research Capability, 2025, arXiv:2504.21776.

- which of two trajectories is preferred, and by which rule: `compare`
- pairs of the trajectories of a problem, for DPO on the policy's own tokens: `PriorityPairs`
- two iterations, each against the newest policy: `conf/rounds/webthinker.yaml`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.rewards.compose import WeightedSum
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.best_worst import label_preference

Rule = Literal["right", "calls", "length"]
RULES: tuple[Rule, ...] = ("right", "calls", "length")
"""In the order in which they are tried."""


@dataclass(frozen=True)
class SearchTrajectory:
    """What the rules compare: the score of the answer, the number of tool calls, and the tokens of the policy."""

    score: float
    calls: int
    tokens: int


def compare(
    a: SearchTrajectory, b: SearchTrajectory, ratio: float = 1.5, right: float = 1.0, rules: Sequence[Rule] = RULES
) -> tuple[int, Rule] | None:
    """Return 1 if a is preferred to b and -1 if b is to a, with the rule that says so; None without a preference.

    right: the higher score, of an answer or a report. Of two that are right, calls: fewer calls. Of two with equally
    many, length: the shorter one, if the other is more than `ratio` times as long. Two that are equally wrong are not
    compared. Source: WebThinker, 2025, section 3.4, arXiv:2504.21776.

    Args:
        a: a trajectory.
        b: another one of the same problem.
        ratio: gamma of the third rule.
        right: smallest score of a right answer.
        rules: those that apply.
    """
    if a.score != b.score:
        return (1 if a.score > b.score else -1, "right") if "right" in rules else None
    if a.score < right:
        return None
    if a.calls != b.calls:
        return (1 if a.calls < b.calls else -1, "calls") if "calls" in rules else None
    if "length" in rules and max(a.tokens, b.tokens) > ratio * min(a.tokens, b.tokens):
        return (1 if a.tokens < b.tokens else -1, "length")
    return None


@dataclass(frozen=True)
class PriorityPairs(EpisodeTransform):
    """Makes preference pairs of the trajectories of each problem by `compare`, labelled for `DPOLoss`.

    At most `pairs` of a problem, drawn from all of its pairs, each a group of two rows; a trajectory can be in several.
    `rollout/pairs/NAME` counts those of each rule. Source: WebThinker, 2025, section 3.4, arXiv:2504.21776.

    Args:
        pairs: of a problem.
        ratio: as in `compare`.
        score_name: "reward", or the name of a score.
        right: as in `compare`.
        rules: as in `compare`.
    """

    pairs: int = 4
    ratio: float = 1.5
    score_name: str = "exact"
    right: float = 1.0
    rules: Sequence[Rule] = RULES

    min_group_size = 2

    def __post_init__(self) -> None:
        check_at_least(1, "priority_pairs", pairs=self.pairs, ratio=self.ratio)
        if not self.rules or not set(self.rules) <= set(RULES):
            raise ConfigError(f"priority_pairs.rules must be among {list(RULES)}, got {list(self.rules)}")

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out: list[Episode] = []
        for slot, group in group_episodes(episodes).items():
            pairs = self._list_pairs(group)
            rng = derive_rng("priority pairs", ctx.seed, ctx.purpose, ctx.iteration, slot)
            chosen = sorted(rng.permutation(len(pairs))[: self.pairs].tolist())
            counts = Counter(f"pairs/{pairs[i][2]}" for i in chosen)
            group[0].info["counts"] = {**group[0].info.get("counts", {}), **counts}
            for number, i in enumerate(chosen):
                better, worse, _ = pairs[i]
                for episode, sign in ((better, 1), (worse, -1)):
                    out.append(label_preference(replace(episode, group=slot * self.pairs + number), sign))
        spare = next((episode for episode in episodes if episode.turns), None)
        return out or ([] if spare is None else [label_preference(spare, 0)])  # 0: not trained on

    def _list_pairs(self, group: Sequence[Episode]) -> list[tuple[Episode, Episode, Rule]]:
        """Pairs (preferred, other) of a group and the rule of each."""
        pairs = []
        for a, b in combinations(group, 2):
            if verdict := compare(self._read(a), self._read(b), self.ratio, self.right, self.rules):
                sign, rule = verdict
                pairs.append((a, b, rule) if sign > 0 else (b, a, rule))
        return pairs

    def _read(self, episode: Episode) -> SearchTrajectory:
        return SearchTrajectory(get_score(episode, self.score_name), len(episode.info.get("calls", ())), episode.tokens)


@dataclass(frozen=True)
class CallScores(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with `calls`, its number of tool calls, among the scores.

    Args:
        weights: by name of the score.
    """

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [{"calls": float(len(episode.info.get("calls", ())))} for episode in episodes]
