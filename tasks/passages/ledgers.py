"""Short texts whose next or middle sentence follows from the others, in one of two wordings; and a judge of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.questions import answer_of
from tasks.generated import GeneratedTask, ask_user
from tasks.passages.task import GAP
from tasks.yes_no import YesNoTask, YesNoVerdict

_SENTENCE = re.compile(r"(Now|It is|Add|Take) (0|[1-9][0-9]?)", re.ASCII)
_MEANINGS = {"Now": "state", "It is": "state", "Add": "add", "Take": "take"}
_MOST = 20  # of a number
Meaning = tuple[str, int]


def read_meanings(text: str) -> list[Meaning] | None:
    """Read the sentences of a text, whatever their wording: ("state", 7); None for other text.

    How many full stops end the last one is free.
    """
    sentences = text.strip().rstrip(".").split(".")
    matches = [_SENTENCE.fullmatch(sentence.strip()) for sentence in sentences]
    return [(_MEANINGS[m[1]], int(m[2])) for m in matches if m] if all(matches) else None


def continues(text: str, following: Sequence[str]) -> bool:
    """Whether a text means the first, the first two, ... of the sentences that follow; never without a sentence."""
    ours, theirs = read_meanings(text), read_meanings(" ".join(following))
    return ours is not None and theirs is not None and ours == theirs[: len(ours)]


@dataclass(frozen=True)
class Ledger:
    """A text, the number of the sentence that is asked for, and whether the one after it is shown."""

    sentences: tuple[str, ...]
    at: int
    middle: bool


@dataclass(frozen=True)
class Ledgers(GeneratedTask):
    """Texts as "Now 4. Add 3. It is 7.": the next state after a change, or the change between two states.

    Texts are raw: which of two wordings a sentence has does not follow from the others, so an answer is right by its
    meaning. Held-out texts are never trained on. Source of the two kinds: Li et al., "Reinforcement Learning on
    Pre-Training Data", arXiv 2509.19249, section 3.

    Args:
        middle: share of the prompts that ask for a middle sentence, between two that are shown.
        states: of a text, at most.
    """

    middle: float = 1 / 3
    states: int = 4

    name = "ledgers"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", middle=self.middle)

    def draw(self, rng: np.random.Generator) -> Ledger:
        sentences, value = [], int(rng.integers(1, _MOST))
        for _ in range(self.states):
            sentences.append(f"{('Now', 'It is')[int(rng.integers(2))]} {value}.")
            other = int(rng.integers(_MOST + 1))
            sentences.append(f"Add {other - value}." if other >= value else f"Take {value - other}.")
            value = other
        middle = bool(rng.random() < self.middle)
        # a state is the next sentence, a change the one in the middle
        at = 2 * int(rng.integers(1, self.states - 1)) + int(middle)
        return Ledger(tuple(sentences), at, middle)

    def split_key(self, problem: Ledger) -> str:
        return _show(problem)  # many texts are alike where they are shown

    def write_prompt(self, problem: Ledger, key: str) -> Prompt:
        following = problem.sentences[problem.at : problem.at + (1 if problem.middle else 3)]
        info = {"following": list(following), "kind": "middle" if problem.middle else "next"}
        return Prompt(key, ask_user(_show(problem)), answer=following[0], info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: means the first one or more following sentences; words: is them word for word; format: sentences."""
        following, text = prompt.info["following"], " ".join(answer.split())
        words = any(text == " ".join(following[: count + 1]) for count in range(len(following)))
        exact = continues(text, following)
        return {"exact": float(exact), "words": float(words), "format": float(read_meanings(text) is not None)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(f"{list(_MEANINGS)[int(rng.integers(4))]} {int(rng.integers(_MOST + 1))}.")


def _show(problem: Ledger) -> str:
    """Write the sentences that are shown, with a gap for the one that is asked for."""
    before, after = problem.sentences[max(0, problem.at - 2) : problem.at], problem.sentences[problem.at + 1 :]
    return " ".join([*before, GAP, *(after[:1] if problem.middle else [])])


@dataclass(frozen=True)
class Continuation:
    """Sentences that follow in a text, and one that may be their beginning."""

    following: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Continuations(YesNoTask):
    """Whether a sentence means the beginning of a text, y or n: what a judge of the answers to `Ledgers` has to learn.

    Args:
        right: share of the sentences that do, in either wording.
    """

    right: float = 0.5

    name = "continuations"

    def draw(self, rng: np.random.Generator) -> Continuation:
        problem = Ledgers(seed=self.seed).draw(rng)
        following = problem.sentences[problem.at : problem.at + (1 if problem.middle else 3)]
        ((kind, number),) = read_meanings(following[0]) or []
        if rng.random() >= self.right:
            # another number, often a close one, or another kind of sentence
            number = int(rng.choice([number + 1, max(number - 1, 0), int(rng.integers(_MOST + 1))]))
            kind = kind if rng.random() < 3 / 4 else str(rng.choice(["state", "add", "take"]))
        words = [word for word, meaning in _MEANINGS.items() if meaning == kind]
        return Continuation(following, f"{words[int(rng.integers(len(words)))]} {number}.")

    def split_key(self, problem: Continuation) -> str:
        return write_question(problem.answer, problem.following)

    def write_prompt(self, problem: Continuation, key: str) -> Prompt:
        label = "y" if continues(problem.answer, problem.following) else "n"
        return Prompt(key, ask_user(write_question(problem.answer, problem.following)), answer=label)


def write_question(answer: str, following: Sequence[str]) -> str:
    """Write a question: It is 7.|Now 7. Add 2.?"""
    return f"{' '.join(answer.split())[:40]}|{' '.join(following)}?"


@dataclass(frozen=True)
class ContinuationVerdict(YesNoVerdict):
    """Score `judge` of an answer: 1 where a judge that learned `Continuations` finds y more likely than n, else 0.

    Args:
        name: of the score.
    """

    def write_question(self, episode: Episode) -> str:
        return write_question(answer_of(episode), episode.prompt.info["following"])
