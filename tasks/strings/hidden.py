"""Apply a function that is not named, but shown by examples, such as "abc>bca dek>ekd xyz="."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mmrl.core.types import Prompt
from tasks.generated import ask_user
from tasks.strings.functions import apply_chain
from tasks.strings.task import LONGEST, Strings

KINDS = ("plain", "propose", "hinted")


@dataclass(frozen=True)
class HiddenFunction(Strings):
    """The word after a hidden chain of functions, of which the prompt has examples.

    Problems that other chains explain as well, with another answer, are not drawn. Of single functions the words are
    divided into splits, of chains the chains, as in `Strings`. `steps` demonstrates the names of the chain from the
    innermost on, one line each, before the word.

    Args:
        examples: pairs of a word and what becomes of it.
        kinds: of training problems, in turn: "plain"; "propose" asks for the names of the chain; "hinted" has them in
            the prompt. Held-out problems are plain.
        proposer_prompt: as the rollout has it, with {question}.
        solver_prompt: as the rollout has it, with {question} and {abstraction}.
    """

    levels: Sequence[int] = (1,)
    examples: int = 2
    kinds: Sequence[str] = ("plain",)
    proposer_prompt: str = "{question}#"
    solver_prompt: str = "{question}{abstraction}"

    name = "hidden_functions"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kinds", tuple(self.kinds))  # configurations give lists
        if self.examples < 1:
            raise ValueError(f"task {self.name!r}: examples must be at least 1, got {self.examples}")
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise ValueError(f"task {self.name!r}: kinds must be of {', '.join(KINDS)}, got {list(self.kinds)}")
        if self.definitions:
            raise ValueError(
                f"task {self.name!r}: definitions would name the functions that are hidden; leave it false"
            )

    def kind(self, index: int) -> str:
        """Return what a problem asks for."""
        return self.kinds[index % len(self.kinds)] if self.split == "train" else "plain"

    def draw(self, rng: np.random.Generator) -> tuple[tuple[str, ...], str, tuple[str, ...]] | None:
        if (problem := super().draw(rng)) is None:
            return None
        chain, word = problem
        lengths = rng.integers(self.letters[0], self.letters[1] + 1, size=self.examples)
        words = tuple("".join(chr(97 + i) for i in rng.integers(26, size=length)) for length in lengths)
        if any(not out or len(out) > LONGEST for example in words for out in apply_chain(chain, example)):
            return None
        for other in product(self.names, repeat=len(chain)):
            explains = all(_apply(other, example) == _apply(chain, example) for example in words)
            if explains and _apply(other, word) != _apply(chain, word):
                return None
        return chain, word, words

    def split_key(self, problem: tuple[tuple[str, ...], str, tuple[str, ...]]) -> str:
        return super().split_key(problem[:2])

    def write_prompt(self, problem: tuple[tuple[str, ...], str, tuple[str, ...]], key: str) -> Prompt:
        chain, word, words = problem
        shown = " ".join(f"{example}>{_apply(chain, example)}" for example in words)
        question = self.question.replace("{}", f"{shown} {word}")
        kind = self.kind(int(key.rsplit("/", 1)[1]))
        if kind == "propose":
            question = self.proposer_prompt.replace("{question}", question)
        if kind == "hinted":
            names = "".join(reversed(chain))
            question = self.solver_prompt.replace("{question}", question).replace("{abstraction}", names)
        return Prompt(key, ask_user(question), answer=_apply(chain, word), info={"level": len(chain)})

    def demonstrate(self, index: int) -> str:
        chain, word, _ = self.problem(index)
        if self.kind(index) == "propose":
            return "".join(reversed(chain))
        names = list(reversed(chain)) if self.steps and self.kind(index) == "plain" else []
        return "\n".join([*names, self.write_answer(_apply(chain, word))])


def _apply(chain: Sequence[str], word: str) -> str:
    return apply_chain(chain, word)[-1]
