"""Twenty questions: find an object by asking for its attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from mmrl.rewards.answers.final_answer import read_guess
from tasks.environment import TextEnvironmentTask
from tasks.twenty_questions.table import ATTRIBUTES, OBJECTS, TABLE

_QUESTION = re.compile(
    r"(?:is (?:it|this|the object|your object) |does it have |(?:can|could) it be |(?:i think )?it(?:'s| is) )?"
    r"(?:an? |the )?([a-z]+) ?\??",
    re.IGNORECASE,
)
_MARKS = str.maketrans("", "", '*_`"\u201c\u201d')


@dataclass(frozen=True)
class Problem:
    """The objects that are possible, and the one to find."""

    candidates: tuple[str, ...]
    secret: str


@dataclass(frozen=True)
class TwentyQuestions(TextEnvironmentTask):
    """Twenty questions: ask for attributes, then name the object. The answers come from a fixed table.

    Source: the game of LMRL-Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models, 2023,
    arXiv:2311.18232, whose answers come from a language model.

    Args:
        objects: possible objects, which the prompt lists.
        step_cost: is subtracted from the reward of every question; the reward of naming the object is 1.
    """

    name = "twenty_questions"
    objects: int = 24
    step_cost: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", f"[2, {len(OBJECTS)}]", objects=self.objects)

    def draw(self, rng: np.random.Generator) -> Problem:
        indices = rng.permutation(len(OBJECTS))[: self.objects]
        return Problem(tuple(sorted(OBJECTS[i] for i in indices)), OBJECTS[indices[0]])

    def split_key(self, problem: Problem) -> str:
        return repr(problem)

    def explain(self, problem: Problem) -> str:
        return (
            f"I think of one of these: {', '.join(problem.candidates)}. Find it in {self.max_turns} questions. Ask for "
            f"one of {', '.join(ATTRIBUTES)}, as in: Is it {ATTRIBUTES[0]}? At the end name it, as in: Is it "
            f"{problem.candidates[0]}?"
        )

    def make_environment(self) -> QuestionEnvironment:
        return QuestionEnvironment(self)


class QuestionEnvironment(TextEnvironment):
    """Answers questions about one secret object.

    Scores: exact (1 if it was named) and efficiency (1 for naming it at once, less by 1 / max_turns for each question
    before).
    """

    def __init__(self, task: TwentyQuestions):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.problem: Problem = prompt.info["problem"]
        self.remaining, self.questions = set(self.problem.candidates), 0
        return self._reply("What do you ask?")

    def apply(self, action: str) -> TextStep:
        self.questions += 1
        match = _QUESTION.fullmatch(read_guess(action).translate(_MARKS))
        word = match[1].lower() if match else ""
        if word in ATTRIBUTES:
            yes = word in TABLE[self.problem.secret]
            self.remaining = {name for name in self.remaining if (word in TABLE[name]) == yes}
            return self._reply("Yes." if yes else "No.")
        if word in self.problem.candidates:
            self.remaining &= {word} if word == self.problem.secret else self.remaining - {word}
            return self._reply("Yes!" if word == self.problem.secret else "No.", word == self.problem.secret)
        return self._reply("I do not understand.", valid=False)

    def expert_action(self) -> str:
        """Ask for the attribute that splits the remaining objects most evenly."""
        if len(self.remaining) == 1:
            return f"Is it {min(self.remaining)}?"

        def imbalance(attribute: str) -> int:
            return abs(len(self.remaining) - 2 * sum(attribute in TABLE[name] for name in self.remaining))

        return f"Is it {min(ATTRIBUTES, key=imbalance)}?"

    def random_action(self, rng: np.random.Generator) -> str:
        words = [*ATTRIBUTES, *self.problem.candidates]
        return f"Is it {words[int(rng.integers(len(words)))]}?"

    def _reply(self, text: str, solved: bool = False, valid: bool = True) -> TextStep:
        cost = self.task.step_cost if self.questions else 0.0
        saved = 1 - (self.questions - 1) / self.task.max_turns
        scores = {"exact": float(solved), "efficiency": saved if solved else 0.0}
        return TextStep(f"\n{text}\n>", reward=solved - cost, terminated=solved, valid=valid, scores=scores)
