"""Say the values of two names, each known by another agent: of `a3 b7` and `f5 c1` the question `b f` wants 7 5."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from mmrl.rewards.answers.token_f1 import token_f1
from tasks.generated import GeneratedTask, ask_user, to_tuples

NAMES = "abcdefghjk"
STYLES = ("sentence", "all", "asked")


@dataclass(frozen=True)
class Problem:
    """Facts (name, value) of both agents, and the name that is asked of each."""

    facts: tuple[tuple[tuple[str, int], ...], ...]
    asked: tuple[str, ...]

    @property
    def answer(self) -> str:
        values = dict(pair for part in self.facts for pair in part)
        return " ".join(str(values[name]) for name in self.asked)


@dataclass(frozen=True)
class SplitFacts(GeneratedTask):
    """Questions about two names, of which each agent knows one; the prompt's question alone cannot be answered.

    `info["facts"]` has the facts of each agent as a text. Problems are split by all of their facts and the question.

    Args:
        known: facts of each agent.
    """

    known: int = 2

    name = "split_facts"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, f"task {self.name!r}:", known=self.known)
        if 2 * self.known > len(NAMES):
            raise ConfigError(f"task {self.name!r}: known must be at most {len(NAMES) // 2}, got {self.known}")

    def draw(self, rng: np.random.Generator) -> Problem:
        names = [NAMES[i] for i in rng.permutation(len(NAMES))[: 2 * self.known]]
        facts = [(name, int(rng.integers(10))) for name in names]
        parts = (tuple(facts[: self.known]), tuple(facts[self.known :]))
        return Problem(parts, tuple(part[int(rng.integers(self.known))][0] for part in parts))

    def split_key(self, problem: Problem) -> str:
        return repr(problem)

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        facts = [" ".join(f"{name}{value}" for name, value in part) for part in problem.facts]
        return Prompt(key, ask_user(" ".join(problem.asked)), answer=problem.answer, info={"facts": facts})

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """`exact`: the right values in the right order; `f1`: token F1."""
        return {
            "exact": float(" ".join(answer.split()) == prompt.answer), "f1": token_f1(answer, prompt.answer),
        }  # fmt: skip


@dataclass(frozen=True)
class FactDialogues(SplitFacts):
    """Split facts with demonstrated dialogues in several styles, for a start of agents that talk.

    Agents write what they know in one of three styles: a sentence with all facts, all facts, or the asked fact. With
    probability `long` both agents write it before one answers; otherwise the second agent answers at once. An answer is
    repeated by the other agent.

    Args:
        view: what an agent reads, with {facts}, {question} and {messages}: as the rollout of dialogues has it.
        separator: between messages: as the rollout has it.
        answer: how an answer is stated, with {answer}.
        styles: of messages: sentence, all, asked.
        long: probability of a dialogue in which both agents write what they know.
        language: text of a prompt; if set, the demonstrations are one message each as a reply to it, as a base model of
            the messages needs them.
    """

    view: str = "{facts}|{question}|{messages}"
    separator: str = "/"
    answer: str = "={answer}"
    styles: Sequence[str] = STYLES
    long: float = 0.5
    language: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "styles")
        check_fraction(f"task {self.name!r}:", long=self.long)
        if not self.styles or not set(self.styles) <= set(STYLES):
            raise ConfigError(f"task {self.name!r}: styles must be among {list(STYLES)}, got {list(self.styles)}")

    def dialogue(self, index: int) -> list[str]:
        """Return the messages of a demonstrated dialogue."""
        rng = derive_rng(self.name, "dialogue", self.split, self.seed, index)
        problem = self.problem(index)
        style = str(rng.choice(self.styles))
        first = [
            tell(part, name, style)
            for part, name in list(zip(problem.facts, problem.asked))[: 2 if rng.random() < self.long else 1]
        ]
        return [*first, *[self.answer.replace("{answer}", problem.answer)] * 2]

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        return [self._demonstrate_dialogue(prompt) for prompt in prompts]

    def _demonstrate_dialogue(self, prompt: Prompt) -> list[tuple[Mapping[str, Any], Any]]:
        messages = self.dialogue(prompt.index)
        if self.language is not None:
            number = int(derive_rng(self.name, "message", self.seed, prompt.index).integers(len(messages)))
            return [({**prompt.observation, "messages": ask_user(self.language)}, messages[number])]
        decisions = []
        for number, message in enumerate(messages):
            values = {
                "facts": prompt.info["facts"][number % 2],
                "question": str(prompt.messages[-1]["content"]),
                "messages": self.separator.join(messages[:number]),
                "agent": str(number % 2 + 1),
            }
            decisions.append(({**prompt.observation, "messages": ask_user(write_view(self.view, values))}, message))
        return decisions


def write_view(view: str, values: Mapping[str, str]) -> str:
    """Replace {name} in a view by its value, once."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), view)


def tell(facts: Sequence[tuple[str, int]], asked: str, style: str) -> str:
    """Write the facts of an agent in a style."""
    if style == "sentence":
        return " and ".join(f"{name} is {value}" for name, value in facts)
    return " ".join(f"{name}{value}" for name, value in facts if style == "all" or name == asked)
