"""The wiki with an expert that judges every page before it goes on: `!y;` where the page has the answer, else `!n;`."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.wiki.task import Wiki


@dataclass(frozen=True)
class JudgedWiki(Wiki):
    """Wiki whose script has a judgement after every search, which ReSeek's policy learns to make.

    The question and its answer are those of `Wiki`.

    Args:
        judge: how the expert judges a page, with {verdict}, y or n: as the rollout's parser has it for the tool's name.
    """

    judge: str = "!{verdict};"

    def script(self, index: int) -> list[str]:
        *searches, answer = super().script(index)
        turns = []
        for number, search in enumerate(searches, 1):
            verdict = "y" if number == len(searches) else "n"
            turns += [search, self.judge.format(verdict=verdict)]
        return [*turns, answer]
