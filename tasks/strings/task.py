"""Predict the output of composed string functions, such as "A(N(abc))="."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples
from tasks.strings.functions import FUNCTIONS, apply_chain
from tasks.strings.levels import MOST_CHAINS, count_chains, find_equal, shortest_chains

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 32  # letters of a word on the way; longer ones are not drawn
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Strings(GeneratedTask):
    """Composed string functions by level: the level is the number of nested functions.

    A composition of two or more functions is in one split alone, whatever the word is. Of a single function the words
    are divided.
    Source: Yuan et al., "From f(x) and g(x) to f(g(x)): LLMs Learn New Skills in RL by Composing Old Ones",
    arXiv 2509.25123, section 2.

    Args:
        levels: numbers of nested functions; a problem has one of them.
        functions: names of the atomic functions, from A to Y; None for all 25.
        letters: fewest and most letters of the word.
        irreducible: leave out compositions that fewer functions compute too, such as A(A(N(abc))) for N(abc), so that a
            level is what it says; compositions that are one function are then in one split.
        definitions: say in the prompt what each function of the problem does.
        steps: demonstrations write what is left after each function, one line each: A(N(abc))= is A(abca), then acba.
        question: the user's turn; {} stands for the problem.
    """

    levels: Sequence[int] = (2,)
    functions: Sequence[str] | None = None
    letters: Sequence[int] = (3, 6)
    irreducible: bool = False
    definitions: bool = False
    steps: bool = False
    question: str = "{}="

    name = "strings"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "levels", "letters")
        if self.functions is not None:
            to_tuples(self, "functions")
        if not self.levels or min(self.levels) < 1 or max(self.levels) > 12:
            raise ValueError(f"task {self.name!r}: levels must be numbers from 1 to 12, got {list(self.levels)}")
        check_range(self.name, "letters", self.letters, 1, 12)
        if not self.names or not set(self.names) <= set(FUNCTIONS):
            raise ValueError(f"task {self.name!r}: functions must be letters from A to Y, got {list(self.names)}")
        if equal := find_equal(self.names, self.letters):
            raise ValueError(
                f"task {self.name!r}: the functions {' and '.join(equal)} are one function on words of "
                f"{self.letters[0]} to {self.letters[1]} letters; leave one of them out of functions, or make letters "
                "longer"
            )
        if self.irreducible and count_chains(self.names, max(self.levels)) > MOST_CHAINS:
            raise ValueError(
                f"task {self.name!r}: irreducible compares all compositions of up to {max(self.levels)} of "
                f"{len(self.names)} functions, at most {MOST_CHAINS:,}; name fewer functions or lower levels"
            )
        if self.question.count("{}") != 1:
            raise ValueError(
                f"task {self.name!r}: question must hold {{}} once, where the problem stands, got {self.question!r}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions that problems are made of."""
        return tuple(FUNCTIONS) if self.functions is None else tuple(self.functions)

    def draw(self, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
        level = self.levels[int(rng.integers(len(self.levels)))]
        chain = tuple(self.names[i] for i in rng.integers(len(self.names), size=level))
        word = _draw_word(rng, *self.letters)
        if self.irreducible and len(self._shorten(chain)) < level:
            return None
        words = apply_chain(chain, word)
        return (chain, word) if words[-1] and max(map(len, words)) <= LONGEST else None

    def split_key(self, problem: tuple[tuple[str, ...], str]) -> str:
        chain, word = problem
        return "".join(self._shorten(chain)) if len(chain) > 1 else f"{chain[0]} {word}"

    def _shorten(self, chain: tuple[str, ...]) -> tuple[str, ...]:
        """The first shortest chain that is the same function, of irreducible compositions; else the chain itself."""
        known = shortest_chains(self.names, tuple(self.letters), max(self.levels)) if self.irreducible else {}
        return known.get(chain, chain)

    def write_prompt(self, problem: tuple[tuple[str, ...], str], key: str) -> Prompt:
        chain, word = problem
        question = self.question.replace("{}", write_chain(chain, word))
        if self.definitions:
            lines = [f"{name}(x) {FUNCTIONS[name][0]}." for name in dict.fromkeys(chain)]
            question = "\n".join([*lines, question])
        answer = apply_chain(chain, word)[-1]
        return Prompt(key, ask_user(question), answer=answer, info={"level": len(chain)})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def demonstrate(self, index: int) -> str:
        chain, word = self.problem(index)
        words = apply_chain(chain, word)
        steps = [write_chain(chain[: -i - 1], after) for i, after in enumerate(words[:-1])]
        return "\n".join([*(steps if self.steps else []), self.write_answer(words[-1])])

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(_draw_word(rng, *self.letters))


def write_chain(chain: Sequence[str], word: str) -> str:
    """Write a composition on a word, the outermost function first: A(N(abc))."""
    return "(".join([*chain, word]) + ")" * len(chain)


def verify(text: str, answer: str) -> dict[str, float]:
    """exact: 1 if the final line is the right word; letters: share of its places with the right letter; format: 1 if
    the final line is one word of lower-case letters.
    """
    final = final_line(text)
    well_formed = WORD.fullmatch(final) is not None
    right = sum(a == b for a, b in zip(final, answer)) / max(len(final), len(answer)) if well_formed else 0.0
    return {"exact": float(final == answer), "letters": right, "format": float(well_formed)}


def _draw_word(rng: np.random.Generator, fewest: int, most: int) -> str:
    return "".join(LETTERS[i] for i in rng.integers(26, size=int(rng.integers(fewest, most + 1))))
