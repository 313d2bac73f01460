"""The wiki with an expert that seldom searches, for starts from which a policy has to learn to search."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from tasks.wiki.task import Wiki


@dataclass(frozen=True)
class HesitantWiki(Wiki):
    """Wiki whose script guesses an answer without a search in a share of the problems.

    Args:
        guessed_fraction: share of the problems whose script is the answer to another problem, and no search.
    """

    guessed_fraction: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", guessed_fraction=self.guessed_fraction)

    def script(self, index: int) -> list[str]:
        rng = derive_rng("wiki", "guessed", self.seed, index)
        if rng.random() >= self.guessed_fraction:
            return super().script(index)
        return [self.write_answer(self[int(rng.integers(len(self)))].answer)]
