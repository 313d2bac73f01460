"""Dialogue about a wish: find which of a few things a user wants by asking, where the user answers wrongly at times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask
from tasks.generated import to_tuples
from tasks.twenty_questions.belief import Belief
from tasks.twenty_questions.table import ATTRIBUTES, TABLE

_WORD = re.compile(r"(?:is it )?(?:an? |the )?([a-z]+) ?[?.!]?", re.IGNORECASE)
SURE = 0.8
"""Probability of a thing at which the expert names it."""


@dataclass(frozen=True)
class Wish:
    """The thing that a user wants, and the number of the user."""

    thing: str
    user: int


@dataclass(frozen=True, kw_only=True)
class WishDialogue(TextEnvironmentTask):
    """A user wants one of a few things; the agent asks about properties and ends the dialogue by naming a thing.

    Answers about properties are wrong with probability `noise`, each time anew. The reward is 1 for the wanted thing,
    minus `step_cost` for every turn.

    Args:
        things: of the table of twenty questions, which the prompt lists.
        properties: that can be asked about; they tell the things apart.
        noise: probability of a wrong answer.
        step_cost: of a turn.
    """

    name = "wish_dialogue"
    things: Sequence[str] = ("bee", "cactus", "cat", "chair", "frog", "knife", "shark", "spoon")
    properties: Sequence[str] = ("animal", "green", "handheld", "heavy", "sharp", "wooden")
    noise: float = 0.1
    step_cost: float = 0.05
    max_turns: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "things", "properties")
        check_interval(f"task {self.name!r}:", "[0, 0.5)", noise=self.noise)
        for key, words, table in (("things", self.things, TABLE), ("properties", self.properties, ATTRIBUTES)):
            if unknown := sorted(set(words) - set(table)):
                raise ValueError(f"task.{key} has {unknown}, which the table of twenty questions has not")
        codes = {tuple(name in TABLE[thing] for name in self.properties) for thing in self.things}
        if len(self.things) < 2 or len(codes) < len(self.things):
            raise ValueError(
                f"task {self.name!r}: {len(self.things)} things have {len(codes)} different answers to "
                f"task.properties={list(self.properties)}; name two things or more and properties that tell them apart"
            )

    def draw(self, rng: np.random.Generator) -> Wish:
        return Wish(str(rng.choice(self.things)), int(rng.integers(2**31)))

    def split_key(self, problem: Wish) -> str:
        return repr(problem)

    def explain(self, problem: Wish) -> str:
        return f"Find what I want: {', '.join(self.things)}. Ask: {', '.join(f'{name}?' for name in self.properties)}"

    def describe_user(self, prompt: Prompt) -> str:
        """The user's hidden state in words, for a writer of dialogues."""
        return f"The user wants the {prompt.info['problem'].thing}."

    def read_word(self, text: str) -> str:
        """The property or thing that a turn of the agent is about; empty where it is neither."""
        match = _WORD.fullmatch(text.strip())
        word = match[1].lower() if match else ""
        return word if word in self.things or word in self.properties else ""

    def make_environment(self) -> WishEnvironment:
        return WishEnvironment(self)

    def make_belief(self) -> Belief:
        """The belief of an agent that has asked nothing."""
        return Belief(self.things, self.properties, self.noise)


class WishEnvironment(TextEnvironment):
    """The user of a `WishDialogue`.

    Scores: exact, 1 if the named thing is the wanted one, and information, the mean over questions of the bits that
    their answer has about the thing (`Belief.information`), 0 without a question.
    """

    def __init__(self, task: WishDialogue):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.wish: Wish = prompt.info["problem"]
        self.belief, self.turns, self.bits = self.task.make_belief(), 0, list[float]()
        self.rng = derive_rng("user's answers", seed, self.wish.user)
        return TextStep("Ask.", scores={"exact": 0.0, "information": 0.0})

    def apply(self, action: str) -> TextStep:
        self.turns += 1
        word = self.task.read_word(action)
        if word in self.task.things:
            right = word == self.wish.thing
            return self._reply("Thanks." if right else "No.", float(right), ended=True)
        if not word:
            return self._reply("What?", valid=False)
        self.bits.append(self.belief.information(word))
        yes = (word in TABLE[self.wish.thing]) != (self.rng.random() < self.task.noise)
        self.belief.update(word, yes)
        return self._reply("Yes." if yes else "No.")

    def expert_action(self) -> str:
        """Name the likeliest thing once it is sure or time is up, else ask what has most information."""
        best = self.belief.best()
        if self.belief.probabilities[best] >= SURE or self.turns >= self.task.max_turns - 1:
            return f"{self.task.things[best]}!"
        return f"{max(self.task.properties, key=self.belief.information)}?"

    def random_action(self, rng: np.random.Generator) -> str:
        words = [*(f"{name}?" for name in self.task.properties), *(f"{thing}!" for thing in self.task.things)]
        return words[int(rng.integers(len(words)))]

    def _reply(self, text: str, exact: float = 0.0, ended: bool = False, valid: bool = True) -> TextStep:
        scores = {"exact": exact, "information": float(np.mean(self.bits)) if self.bits else 0.0}
        return TextStep(text, reward=exact - self.task.step_cost, terminated=ended, valid=valid, scores=scores)
