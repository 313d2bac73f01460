"""Negotiation: divide books, hats and balls with a partner who values them differently."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

import numpy as np

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask

ITEMS = ("books", "hats", "balls")
TOTAL = 10  # what all items are worth to each side
Split = tuple[int, ...]
_PROPOSAL = re.compile(r"propose (\d) (\d) (\d)", re.ASCII)


@dataclass(frozen=True)
class Deal:
    """What there is, what each item is worth to both sides, and how fast the partner concedes."""

    counts: Split
    values: Split
    partner_values: Split
    concession: int

    def worth(self, split: Split, values: Split) -> int:
        """Value of some of each item."""
        return sum(number * value for number, value in zip(split, values))

    def partner_worth(self, split: Split) -> int:
        """Value to the partner of what a split leaves."""
        return TOTAL - self.worth(split, self.partner_values)

    def splits(self) -> list[Split]:
        """All that the policy may get."""
        return list(product(*(range(count + 1) for count in self.counts)))

    def demand(self, turn: int) -> int:
        """What the partner wants at least in a turn, from 0."""
        return max(TOTAL - 1 - self.concession * turn, 0)

    def best(self, turn: int) -> Split:
        """The split with the greatest value that the partner accepts in a turn; the first of several."""
        accepted = [split for split in self.splits() if self.partner_worth(split) >= self.demand(turn)]
        return max(accepted, key=lambda split: self.worth(split, self.values))

    def offer(self, turn: int) -> Split:
        """What the partner offers: fewest points for itself that meet its demand, and of those splits most items."""
        accepted = [split for split in self.splits() if self.partner_worth(split) >= self.demand(turn)]
        return min(accepted, key=lambda split: (self.partner_worth(split), -sum(split)))


@dataclass(frozen=True)
class Negotiation(TextEnvironmentTask):
    """Deal or no deal: both sides value all items at 10, each in its own way; a delay costs.

    The partner accepts what leaves it at least its demand: 9 in the first turn, and `concession` less in each further
    one. Otherwise it makes an offer.
    Source: the setting of Lewis et al., "Deal or No Deal? End-to-End Learning for Negotiation Dialogues", 2017,
    arXiv:1706.05125, with proposals in place of dialogue.

    Args:
        discount: factor of a deal's value for each turn before it.
        concessions: fewest and most points by which the partner's demand falls in a turn.
    """

    name = "negotiation"
    max_turns: int = 6
    discount: float = 0.95
    concessions: tuple[int, int] = (1, 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "concessions", tuple(self.concessions))
        if not 0 < self.discount <= 1 or not 1 <= self.concessions[0] <= self.concessions[1]:
            raise ValueError(
                f"task {self.name!r}: need 0 < discount <= 1 and 1 <= concessions[0] <= concessions[1], "
                f"got {self.discount} and {self.concessions}"
            )

    def draw(self, rng: np.random.Generator) -> Deal | None:
        counts = tuple(int(n) for n in rng.integers(1, 5, size=len(ITEMS)))
        fitting = [
            values
            for values in product(range(TOTAL + 1), repeat=len(ITEMS))
            if sum(count * value for count, value in zip(counts, values)) == TOTAL
        ]
        if len(fitting) < 2:
            return None
        first, second = (fitting[int(i)] for i in rng.choice(len(fitting), size=2, replace=False))
        deal = Deal(counts, first, second, int(rng.integers(self.concessions[0], self.concessions[1] + 1)))
        return deal if max(self.rewards(deal)) > 0 else None

    def rewards(self, deal: Deal) -> list[float]:
        """The reward of the best split that the partner accepts, by turn."""
        return [self.reward(deal, deal.best(turn), turn) for turn in range(self.max_turns)]

    def reward(self, deal: Deal, split: Split, turn: int) -> float:
        """The reward of a deal in a turn, from 0."""
        return deal.worth(split, deal.values) / TOTAL * self.discount**turn

    def split_key(self, problem: Deal) -> str:
        return repr(problem)

    def explain(self, problem: Deal) -> str:
        items = ", ".join(
            f"{count} {item} ({value} points each)" for count, item, value in zip(problem.counts, ITEMS, problem.values)
        )
        return (
            f"Divide {items} with a partner who has other points. Write what you get, as in: propose "
            f"{' '.join(map(str, problem.counts))}, or: accept. You have {self.max_turns} turns, and every turn before "
            "the deal costs points. Without a deal you get nothing."
        )

    def make_environment(self) -> NegotiationEnvironment:
        return NegotiationEnvironment(self)


class NegotiationEnvironment(TextEnvironment):
    """A partner that concedes by a fixed rule.

    The reward of a deal is its value / 10 * discount^(turns before it). Scores: exact (1 if no deal is worth more),
    value (the reward over that of the best deal) and deal.
    """

    def __init__(self, task: Negotiation):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.deal: Deal = prompt.info["problem"]
        self.turn = 0
        self.offered: Split | None = None
        self.rewards = self.task.rewards(self.deal)
        return TextStep("\nWhat do you propose?\n>", scores=self._scores(0.0))

    def apply(self, action: str) -> TextStep:
        turn, self.turn = self.turn, self.turn + 1
        match = _PROPOSAL.fullmatch(action.strip().lower())
        split = tuple(map(int, match.groups())) if match else None
        accepts = action.strip().lower() == "accept" and self.offered is not None
        if not accepts and (split is None or any(n > count for n, count in zip(split, self.deal.counts))):
            return TextStep("\nThat is no proposal.\n>", valid=False, scores=self._scores(0.0))
        if split is None or self.deal.partner_worth(split) >= self.deal.demand(turn):
            agreed = self.offered if split is None else split
            assert agreed is not None
            reward = self.task.reward(self.deal, agreed, turn)
            return TextStep("\nDeal.\n>", reward=reward, terminated=True, scores=self._scores(reward, 1.0))
        self.offered = self.deal.offer(turn)
        text = f"\nNo. You get {' '.join(map(str, self.offered))}.\n>"
        return TextStep(text, scores=self._scores(0.0))

    def expert_action(self) -> str:
        """Propose the best split that the partner accepts in the best turn; before that, all items."""
        now = self.rewards[self.turn] == max(self.rewards[self.turn :])
        return f"propose {' '.join(map(str, self.deal.best(self.turn) if now else self.deal.counts))}"

    def random_action(self, rng: np.random.Generator) -> str:
        splits = self.deal.splits()
        return f"propose {' '.join(map(str, splits[int(rng.integers(len(splits)))]))}"

    def _scores(self, reward: float, deal: float = 0.0) -> dict[str, float]:
        value = reward / max(self.rewards)
        return {"exact": float(value >= 1 - 1e-9), "value": min(value, 1.0), "deal": deal}
