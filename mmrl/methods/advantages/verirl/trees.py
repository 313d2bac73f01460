"""VeriRL: preference pairs of answers whose scores come from their repairs: trace-back based rescore (TbR).

- the score of an answer: `Attempt.rescore`; pairs of answers: `select_pairs`; both of a frozen model: `RepairTrees`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.best_worst import label_preference


@dataclass
class Attempt:
    """An answer, its pass rate in [0, 1], and the answers that repair it."""

    text: str
    score: float
    repairs: list[Attempt] = field(default_factory=list)

    def rescore(self) -> float:
        """Return the mean of the rescored repairs, or the own score without repairs (TbR)."""
        scores = [repair.rescore() for repair in self.repairs]
        return sum(scores) / len(scores) if scores else self.score


def select_pairs(
    scores: Sequence[float], min_chosen: float = 0.8, margin: float = 0.4, min_rejected: float = 0.0
) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i preferred, with r_i > min_chosen, r_i > r_j + margin and r_j > min_rejected.

    Source: VeriRL, 2025, trace-back based rescore, arXiv:2508.18462.
    """
    places = range(len(scores))
    better = [(i, j) for i in places for j in places if scores[i] > min_chosen and scores[i] > scores[j] + margin]
    return [(i, j) for i, j in better if scores[j] > min_rejected]


Node = tuple[int, Prompt, Attempt | None]
"""Slot and prompt, and the answer that fails, if there is one."""


class RepairTrees(Rollout):
    """Preference pairs for a reward model: answers of a frozen model, with failing ones rescored by their repairs.

    An answer below `repair_below` is shown to the model again, with a message, which writes `num_repairs` others; so
    are these, `rounds` times in all. Each pair is a group of its own. data.reward is the pass rate. Source: VeriRL,
    2025, trace-back based rescore, arXiv:2508.18462.

    Args:
        solver: name of the model in `model.frozen_models`.
        num_answers: to each problem.
        num_repairs: of each answer that fails; the paper does not tell.
        rounds: of repairs.
        repair_below: pass rate below which an answer fails.
        message: the user's turn after a failing answer.
        max_pairs: of each problem, the first ones.
    """

    samples = False

    def __init__(
        self,
        solver: str = "solver",
        num_answers: int = 10,
        num_repairs: int = 2,
        rounds: int = 2,
        repair_below: float = 0.2,
        message: str = "\n",
        max_pairs: int = 8,
    ):
        if min(num_answers - 1, num_repairs, rounds, max_pairs) < 1:
            raise ValueError("rollout: need num_answers >= 2, and num_repairs, rounds and max_pairs >= 1")
        self.solver, self.num_answers, self.num_repairs, self.rounds = solver, num_answers, num_repairs, rounds
        self.repair_below, self.message, self.max_pairs = repair_below, message, max_pairs

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.solver})

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        trees = self._answer([(slot, prompt, None) for slot, prompt in prompts], self.num_answers, 0, ctx)
        level = [(slot, prompt, root) for (slot, prompt), roots in zip(prompts, trees) for root in roots]
        for number in range(1, self.rounds + 1):
            level = [node for node in level if node[2].score < self.repair_below]
            for (_, _, failed), repairs in zip(level, self._answer(level, self.num_repairs, number, ctx)):
                failed.repairs = repairs
            level = [(slot, prompt, repair) for slot, prompt, failed in level for repair in failed.repairs]
        return [e for (slot, prompt), roots in zip(prompts, trees) for e in self._pair(slot, prompt, roots, ctx)]

    def _pair(self, slot: int, prompt: Prompt, roots: Sequence[Attempt], ctx: Context) -> list[Episode]:
        """Return both answers of each pair; without a pair the first answer, which is not trained on."""
        pairs = select_pairs([root.rescore() for root in roots])[: self.max_pairs]
        labelled = [(n, i, *one) for n, pair in enumerate(pairs) for i, one in enumerate(zip(pair, (1, -1)))]
        out = []
        for number, index, place, sign in labelled or [(0, 0, 0, 0)]:
            text = roots[place].text
            turn = Turn(demonstration({**prompt.observation, "answer": text}, text, ctx))
            episode = Episode(prompt, slot * self.max_pairs + number, index, [turn], source="demo")
            out.append(label_preference(episode, sign))
        return out

    def _answer(self, nodes: Sequence[Node], count: int, number: int, ctx: Context) -> list[list[Attempt]]:
        """Return `count` scored answers to each (slot, prompt, failing answer or None)."""
        requests, episodes = [], []
        request_counts: Counter[int] = Counter()  # of a slot: draws do not depend on the other prompts of a process
        for place, (slot, prompt, failed) in enumerate(nodes):
            raw = text_observation(prompt)
            # a repair continues the conversation with the failing answer and the message
            if failed is not None:
                turns = ({"role": "assistant", "content": failed.text}, {"role": "user", "content": self.message})
                raw = {**raw, "messages": (*raw["messages"], *turns)}
            for index in range(count):
                seed = derive_seed(
                    "repairs", ctx.seed, ctx.purpose, ctx.iteration, slot, number, request_counts[slot], index
                )
                requests.append(Request(raw, seed, prompt_id=(number, place), model=self.solver))
                episodes.append(Episode(prompt, place, index))
            request_counts[slot] += 1
        for episode, done in zip(episodes, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            episode.turns, episode.ended = [Turn(done)], done.ended
        ctx.collector.score(episodes)
        # `count` consecutive episodes belong to one node
        attempts = [Attempt(str(e.output), e.reward) for e in episodes]
        return [attempts[start : start + count] for start in range(0, len(attempts), count)]
