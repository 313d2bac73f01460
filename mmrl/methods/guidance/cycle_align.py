"""CycleAlign: a judge with examples and the policy's own likelihood rank answers, and agree on new examples.

CycleAlign: Iterative Distillation from Black-box LLM to White-box Models for Better Human Alignment, 2023,
arXiv:2310.16271.

- a judge ranks the answers to a prompt after ranked examples: `DemonstratedRanking`
- the policy ranks them by length-normalised log-prob p; the longest common subsequence of both orders is the agreement:
  `find_agreement`; it joins the examples of the judge, which ranks again, up to N = 5 times: `CycleAlign`
- L = sum over i before j in the judge's order of max(0, p_j - p_i) - p_best: `CycleAlignLoss`

More than 150 lines, since judge and policy rank the same groups in cycles: a question, a rollout, a reward and a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt
from mmrl.distributed import parallel
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, Unreadable, answer_of, question_of
from mmrl.rollouts.text.single_turn import SingleTurn

RANK, ACCURACY = "judge_rank", "judge_accuracy"
"""Names of the scores: the place of an answer in the judge's order, 0 for the best, and whether the order is right."""


def find_agreement(judge: Sequence[int], policy: Sequence[int]) -> list[int]:
    """Return the longest common subsequence of two orders of the same answers, the best answer first.

    Of several longest ones it is the one whose answers come first in the judge's order.
    Source: CycleAlign, 2023, the agreement ranking, arXiv:2310.16271.
    """
    place = {answer: n for n, answer in enumerate(policy)}
    # longest[i]: the longest common subsequence that begins with the judge's answer i
    longest: list[list[int]] = [[] for _ in judge]
    for i in reversed(range(len(judge))):
        later = [longest[j] for j in range(i + 1, len(judge)) if place[judge[j]] > place[judge[i]]]
        longest[i] = [judge[i], *max(later, key=len, default=[])]
    return max(longest, key=len, default=[])


class RankedExample(NamedTuple):
    """A question with answers to it, the best first."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class DemonstratedRanking:
    """Asks a language model for the order of answers, after examples of orders.

    Args:
        instruction: what makes an answer the better one.
    """

    instruction: str = "Rank the answers to the question from the best to the worst, as those of the examples are."

    def ask(self, question: str, answers: Sequence[str], examples: Sequence[RankedExample]) -> Question:
        """The question, whose verdict lists the numbers of the answers from 0, the best first."""
        texts: dict[str, str] = {}
        for number, example in enumerate(examples, start=1):
            texts[f"example.{number}.question"] = example.question
            texts |= {f"example.{number}.rank.{place}": text for place, text in enumerate(example.answers, start=1)}
        texts |= {"question": question, **{f"answer.{n}": text for n, text in enumerate(answers, start=1)}}
        sheet = Sheet(texts)
        verdict = "End with one line that reads\nranking-MARK: N > N > N\nwith the number of every answer once."
        return Question(sheet.format(self.instruction, verdict), lambda reply: self._read(sheet, reply, len(answers)))

    def _read(self, sheet: Sheet, reply: Reply, count: int) -> list[int]:
        places = [place.strip() for place in sheet.read(reply).get("ranking", "").split(">")]
        if sorted(places) != sorted(str(n) for n in range(1, count + 1)):
            raise Unreadable(f"its ranking does not name each of {count} answers once")
        return [int(place) - 1 for place in places]


class CycleAlign(SingleTurn):
    """Single-turn rollout whose groups a judge ranks in cycles, with the agreements with the policy as its examples.

    In a cycle the judge ranks every group after the newest examples of the pool; the agreement with the order of the
    policy's length-normalised log-probs joins the pool, where it has at least `least` answers, and the oldest examples
    leave it. The order of the last cycle counts: `info["judge_rank"]` is an answer's place in it, from 0 for the best.
    A group that the judge never ranked is an error. Log-probs are those of the distribution that was drawn from.
    Examples of all processes are in the pool of each. Source: CycleAlign, 2023, arXiv:2310.16271.

    Args:
        judge: who ranks.
        ranking: how it is asked.
        cycles: N, the most cycles of an iteration; a group whose order stays the same is not asked about again.
        shown: examples that a question has, the newest ones.
        pool: examples that are kept.
        least: answers of an agreement that becomes an example.
    """

    def __init__(
        self,
        judge: LanguageJudge,
        ranking: DemonstratedRanking | None = None,
        cycles: int = 5,
        shown: int = 3,
        pool: int = 64,
        least: int = 2,
    ):
        check_at_least(1, "rollout", cycles=cycles, pool=pool)
        check_at_least(0, "rollout", shown=shown)
        check_at_least(2, "rollout", least=least)
        self.judge, self.ranking = judge, ranking or DemonstratedRanking()
        self.cycles, self.shown, self.least = cycles, shown, least
        self.pool: deque[RankedExample] = deque(maxlen=pool)
        self._agreed: list[float] = []  # of the last collection: share of a group's answers that the agreement has

    def sampled_models(self) -> frozenset[str]:
        return self.judge.sampled_models()

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, ctx)
        whole = [episode for episode in episodes if episode.ended != "error"]
        groups = [group for group in group_episodes(whole).values() if len(group) > 1]
        policy_orders = [order_by_likelihood(group) for group in groups]
        orders: dict[int, list[int]] = {}
        running = set(range(len(groups)))
        judge = self.judge.bind(ctx)
        for _ in range(self.cycles):  # as many on every process, since examples are gathered
            numbers = sorted(running)
            verdicts = judge.judge([self._ask(groups[n]) for n in numbers]) if numbers else []
            agreements: list[RankedExample] = []
            for n, order in zip(numbers, verdicts):
                if isinstance(order, NoAnswer):
                    continue
                if orders.get(n) == order:
                    running.discard(n)
                orders[n] = order
                agreement = find_agreement(order, policy_orders[n])
                if len(agreement) >= self.least:
                    answers = tuple(answer_of(groups[n][i]) for i in agreement)
                    agreements.append(RankedExample(question_of(groups[n][0]), answers))
            self.pool.extend(RankedExample(*each) for each in parallel.gather(agreements))
        self._agreed = [
            len(find_agreement(order, policy_orders[n])) / len(order) for n, order in sorted(orders.items())
        ]
        for n, group in enumerate(groups):
            self._note(group, orders.get(n))
        return episodes

    def _ask(self, group: Sequence[Episode]) -> Question:
        examples = list(self.pool)[-self.shown :] if self.shown else []
        return self.ranking.ask(question_of(group[0]), [answer_of(episode) for episode in group], examples)

    def _note(self, group: Sequence[Episode], order: Sequence[int] | None) -> None:
        """Write the places of a group's answers, or why there are none."""
        for number, episode in enumerate(group):
            if order is None:
                episode.ended, episode.info["error"] = "error", "the judge gave no order of the group"
            else:
                episode.info[RANK] = order.index(number)

    def metrics(self) -> dict[str, float]:
        """Mean share of a group's answers in the last agreement, and the number of examples in the pool."""
        shares = parallel.gather(self._agreed)
        agreed = {"rollout/judge_agreement": sum(shares) / len(shares)} if shares else {}
        return {**agreed, "rollout/judge_examples": float(len(self.pool))}

    def state_dict(self) -> dict[str, Any]:
        return {"pool": [[example.question, list(example.answers)] for example in self.pool]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        examples = [RankedExample(question, tuple(answers)) for question, answers in state["pool"]]
        self.pool = deque(examples, maxlen=self.pool.maxlen)


def order_by_likelihood(group: Sequence[Episode]) -> list[int]:
    """Numbers of a group's answers by the mean log-prob of their tokens, the most likely first; of equals the first."""
    means = []
    for episode in group:
        done = episode.turns[-1].completion
        means.append(float(done.behavior_logprobs[done.action_mask].mean()))
    return sorted(range(len(group)), key=lambda n: (-means[n], n))


@dataclass(frozen=True)
class JudgeOrder(Reward):
    """Reward of an answer by its place in the judge's order: 1 for the best and 0 for the worst of its group.

    Without a place, as in an evaluation, it is 0. Scores that it adds: `judge_rank`, the place, and, where a
    score of the task says what is better, `judge_accuracy`: the share of the pairs of the answer with others of its
    group, which that score tells apart, that are in the right order.

    Args:
        gold: name of the score that says what is better; None for none.
        weights: by name of further scores, which are added to the place.
    """

    gold: str | None = None
    weights: dict[str, float] = field(default_factory=dict)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        scores: dict[int, dict[str, float]] = {id(e): {RANK: float(e.info[RANK])} for e in episodes if RANK in e.info}
        if self.gold is not None:
            for group in group_episodes([e for e in episodes if id(e) in scores]).values():
                self._compare(group, self.gold, scores)
        return [scores.get(id(episode), {}) for episode in episodes]

    def _compare(self, group: Sequence[Episode], gold: str, scores: dict[int, dict[str, float]]) -> None:
        """Add the accuracy of the answers of a group."""
        right: dict[int, list[bool]] = {}
        for one, other in combinations(group, 2):
            better = one.scores[gold] - other.scores[gold]
            if better:
                agrees = (one.info[RANK] < other.info[RANK]) == (better > 0)
                right.setdefault(id(one), []).append(agrees)
                right.setdefault(id(other), []).append(agrees)
        for key, each in right.items():
            scores[key][ACCURACY] = sum(each) / len(each)

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        last = max(len(group) - 1, 1)
        places = [1 - episode.info[RANK] / last if RANK in episode.info else 0.0 for episode in group]
        return [place + more for place, more in zip(places, WeightedSum(self.weights)(group))]


def sum_hinges(
    means: Tensor,  # [N] nats, p of a row
    reward: Tensor,  # [N]
    same: Tensor,  # [N, N] bool, whether two rows are of one group and counted
) -> Tensor:  # [N] the loss of the row's group
    """Ranking loss of a group: sum of max(0, p_j - p_i) over its pairs with r_i > r_j.

    Source: CycleAlign, 2023, arXiv:2310.16271.
    """
    # (i, j): row i is better, and less likely by so much
    hinges = (means[None, :] - means[:, None]).relu() * (same & (reward[:, None] > reward[None, :]))
    return same.to(means.dtype) @ hinges.sum(1)


@dataclass(frozen=True)
class CycleAlignLoss(Term):
    """Loss of a ranked group, per row [N], the same for its rows: hinges of the order, and imitation of the best row.

    L = sum over r_i > r_j of max(0, p_j - p_i) - imitation_coef p_best, with p the mean log-prob of a row's choices in
    nats. Source: CycleAlign, 2023, arXiv:2310.16271.

    Args:
        imitation_coef: weight of the negative log-likelihood per token.
    """

    imitation_coef: float = 1.0

    whole_groups = True

    def __post_init__(self) -> None:
        check_at_least(0, "cycle_align_loss", imitation_coef=self.imitation_coef)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        means, reward, same = self._read(out, batch)
        # (rows,) whether a row is the best of its group, then the mean of p over the best rows of the row's group
        best = same.any(1) & ~(same & (reward[None, :] > reward[:, None])).any(1)
        weights = (same & best[None, :]).to(means.dtype)
        mean_of_best = (weights @ means) / weights.sum(1).clamp(min=1)
        return sum_hinges(means, reward, same) - self.imitation_coef * mean_of_best

    def _read(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Mean log-prob and reward of the rows [N], and which of them are of one group [N, N]."""
        mask, group = batch["action_mask"], batch["group"]
        counted, means = mask.any(1), masked_mean(out.full_logprobs, mask, dim=1)
        same = (group[:, None] == group[None, :]) & counted[:, None] & counted[None, :]
        return means, batch["episode_reward"].to(means.dtype), same

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ranking: the hinges of the row's group, nats."""
        return {"ranking": sum_hinges(*self._read(out, batch))}
