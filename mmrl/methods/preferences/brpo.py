"""BRPO: advantages of +1 and -1 from a pairwise judge's comparison with one answer of the group itself.

Writing-Zero: Bridge the Gap Between Non-verifiable Problems and Verifiable Rewards, 2025, arXiv:2506.00103.

- a generative judge grades each answer beside the bootstrapped reference: `BootstrappedReference`
- R_i = 1 where s_i > s_ref, else -1; R_ref = 0; A_i = R_i, without a baseline and without a scale
- groups whose |sum_i R_i| / G is too large are sampled anew: `skew`, `BalancedGroups`

The judge is trained by GRPO with accuracy, format and margin, and against the preference for a place:
`position_weight`, `PositionWeightedSum`, on both orders of a pair in one iteration: `BothOrders`.

More than 150 lines, since the paper has two halves, the policy's and its judge's.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.curricula.base import Curriculum
from mmrl.curricula.sampler import Shuffled
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.graded import AnswerGrader, SheetGrader
from mmrl.rewards.judges.questions import Question, answer_of
from mmrl.transforms.dynamic_sampling import DynamicSampling


@dataclass(frozen=True)
class BootstrappedReference(JudgeForm):
    """Score `judge` of an answer: 1 if it beats a randomly picked answer of its own group, else -1; that one has 0.

    With both orders an answer wins only where it has the higher grade in each, because judges prefer a place. The pick
    is a hash of the prompt and of the group's answers. Source: Writing-Zero, 2025, section 3.3, arXiv:2506.00103.

    Args:
        grader: asks for the grades of two answers.
        both_orders: ask twice, with the answers exchanged.
        neutral: equal grades, and orders that contradict each other, are 0; otherwise they are no win, -1.
        name: of the score.
    """

    grader: AnswerGrader = field(default_factory=SheetGrader)
    both_orders: bool = True
    neutral: bool = False
    name: str = "judge"

    def pick(self, group: Sequence[Episode]) -> int:
        """Number of the reference in its group."""
        texts = [group[0].prompt.key, *map(answer_of, group)]
        digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % len(group)

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        reference, questions = self.pick(group), []
        for i, episode in enumerate(group):
            if i != reference:
                pair = [answer_of(episode), answer_of(group[reference])]
                orders = [pair, pair[::-1]] if self.both_orders else [pair]
                questions += [self.grader.ask(episode, order) for order in orders]
        return questions

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        results: list[dict[str, float] | NoAnswer] = []
        reference, rest = self.pick(group), iter(verdicts)
        for i in range(len(group)):
            leads = [] if i == reference else self._leads(rest)
            failure = next((lead for lead in leads if isinstance(lead, NoAnswer)), None)
            if failure is not None:
                results.append(failure)
            else:
                results.append({self.name: 0.0 if i == reference else self._compare(leads)})
        return results

    def _leads(self, verdicts: Any) -> list[Any]:
        """Grade of the answer minus that of the reference in each order, or a NoAnswer."""
        first = next(verdicts)
        leads = [first if isinstance(first, NoAnswer) else first[0] - first[1]]
        if self.both_orders:
            second = next(verdicts)
            leads.append(second if isinstance(second, NoAnswer) else second[1] - second[0])
        return leads

    def _compare(self, leads: Sequence[float]) -> float:
        if all(lead > 0 for lead in leads):
            return 1.0
        return 0.0 if self.neutral and not all(lead < 0 for lead in leads) else -1.0

    def count(self, verdicts: Sequence[Any]) -> dict[str, int]:
        if not self.both_orders:
            return {}
        rest = iter(verdicts)
        pairs = [self._leads(rest) for _ in range(len(verdicts) // 2)]
        readable = [pair for pair in pairs if not any(isinstance(lead, NoAnswer) for lead in pair)]
        return {
            "inconsistent": sum((first > 0) - (first < 0) != (second > 0) - (second < 0) for first, second in readable)
        }


def skew(rewards: Sequence[float]) -> float:
    """Skew of a group: |sum_i R_i| / G. Source: Writing-Zero, 2025, section 3.3, arXiv:2506.00103."""
    return abs(sum(rewards)) / len(rewards)


@dataclass(frozen=True)
class BalancedGroups(DynamicSampling):
    """Dynamic sampling by skew: drops groups whose |sum R| / G exceeds a bound, and samples further prompts.

    Args:
        num_groups: how many to keep, over all processes; None keeps as many as arrive here.
        max_rounds: how many times to sample what is missing.
        score_name: "reward", or the name of a score.
        tolerance: largest difference of rewards that counts as equal.
        max_skew: largest |sum R| / G of a group that is trained on.
    """

    max_skew: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("balanced_groups", max_skew=self.max_skew)

    def _with_variance(self, groups: dict[int, list[Episode]]) -> dict[int, list[Episode]]:
        varied = super()._with_variance(groups)
        return {key: group for key, group in varied.items() if skew([e.reward for e in group]) <= self.max_skew}


def position_weight(right: float, other: float, strength: float) -> float:
    """Weight of the accuracy of replies about a pair in one order: w = 1 - strength (a - a').

    a and a' are the shares of right replies in this order and in the other one. A judge that prefers a place is right
    where the better answer stands there: w < 1 in that order, w > 1 in the other one, and 1 where both are judged
    alike. Source: Writing-Zero, 2025, section 3.2, arXiv:2506.00103, rewards that are weighted against position bias;
    the paper gives no equation, and this form is ours.
    """
    return 1 - strength * (right - other)


@dataclass(frozen=True)
class PositionWeightedSum(WeightedSum):
    """Reward of a reply about a pair: sum_k weights_k * scores_k, that of `accuracy` times its `position_weight`.

    The two orders of a pair are prompts with the same `info["pair"]`. Scores that it adds: `position_weight`, 1 where
    the other order is not among the episodes, and `position_bias` = |a - a'|.

    Args:
        weights: by name of the score.
        strength: of the weighting, in [0, 1]; 0 leaves all weights at 1.
        accuracy: name of the score that is 1 for a right reply and 0 for a wrong one.
    """

    strength: float = 1.0
    accuracy: str = "accuracy"

    def __post_init__(self) -> None:
        check_fraction("reward", strength=self.strength)
        if self.accuracy not in self.weights:
            raise ConfigError(
                f"reward.accuracy={self.accuracy!r} has no weight in reward.weights, which names {list(self.weights)}; "
                "add it there"
            )

    def check_task(self, task: Task) -> None:
        """Refuse a task whose problems 2 i and 2 i + 1 are not one pair in both orders."""
        pairs = [task[index].info.get("pair") for index in range(min(2, len(task)))]
        if len(pairs) < 2 or pairs[0] is None or pairs[0] != pairs[1]:
            raise ConfigError(
                f"reward needs both orders of each pair of answers, and problems 0 and 1 of task {task.name!r} are no "
                "such pair; set task.both_orders=true of task=judgements, or write the same Prompt.info['pair'] into "
                "both"
            )

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        groups = group_episodes(episodes)
        shares = {key: sum(e.scores[self.accuracy] for e in group) / len(group) for key, group in groups.items()}
        orders: dict[Any, list[int]] = defaultdict(list)  # of each pair, the groups of its prompts
        for key, group in groups.items():
            orders[group[0].prompt.info["pair"]].append(key)
        scores: dict[int, dict[str, float]] = {}
        for keys in orders.values():
            for key in keys:
                question = groups[key][0].prompt.messages
                others = [shares[k] for k in keys if groups[k][0].prompt.messages != question]
                other = sum(others) / len(others) if others else shares[key]
                weight = position_weight(shares[key], other, self.strength)
                scores[key] = {"position_weight": weight, "position_bias": abs(shares[key] - other)}
        return [scores[episode.group] for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        share = self.weights[self.accuracy]
        return [
            reward + share * (episode.scores["position_weight"] - 1) * episode.scores[self.accuracy]
            for reward, episode in zip(super().__call__(group), group)
        ]


class _Pairs(Task):
    """The pairs of a task with both orders, as the curriculum counts them."""

    def __init__(self, task: Task):
        self.task, self.name, self.split = task, task.name, task.split

    def __len__(self) -> int:
        return len(self.task) // 2

    def __getitem__(self, index: int) -> Prompt:
        return self.task[2 * index]

    def score(self, episode: Episode) -> dict[str, float]:
        return self.task.score(episode)

    def on(self, split: str) -> _Pairs:
        return _Pairs(self.task.on(split))


class BothOrders(Curriculum):
    """Select pairs of answers in seeded permutations, each in both orders in one iteration and on one process.

    Problems 2 i and 2 i + 1 of the task are one pair. Processes take every W-th problem, so W pairs follow each other
    in one order, and then in the other one.
    """

    def __init__(self) -> None:
        self._pairs = Shuffled()

    def select(self, count: int, ctx: Context) -> list[int]:
        pairs = self._pairs.select(-(-count // 2), replace(ctx, task=_Pairs(ctx.task)))
        parts = [pairs[start : start + ctx.world_size] for start in range(0, len(pairs), ctx.world_size)]
        return [2 * pair + order for part in parts for order in (0, 1) for pair in part][:count]

    def state_dict(self) -> dict[str, Any]:
        return self._pairs.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pairs.load_state_dict(dict(state))
