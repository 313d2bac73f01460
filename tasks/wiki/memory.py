"""The wiki as something to know by heart: the same people in both splits, with different questions."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.types import Prompt
from tasks.wiki.data import KnowledgeBase, page
from tasks.wiki.task import Wiki


@dataclass(frozen=True)
class MemorisedWiki(Wiki):
    """Wiki whose expert writes the pages by itself: its answer is searches, their results and the name, in one text.

    Held-out questions are others about the same people, so that a policy that knows the training pages can answer them
    without a search engine. Questions are of two relations or more: a page alone answers none.

    Args:
        result: how the expert writes a page, with {page}: as the rollout's parser has it.
    """

    people: int = 48
    result: str = "[{page}]"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(2, f"task {self.name!r}:", hops=self.hops)
        before, _, after = self.result.partition("{page}")
        if not before or not after:
            raise ValueError(
                f"task {self.name!r}: result={self.result!r} needs {{page}} between two marks, as [{{page}}]"
            )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: of what stands after the last result, which the policy or a search engine wrote."""
        return super().verify(answer.rpartition(self.result.partition("{page}")[2])[2], prompt)

    @property
    def knowledge_bases(self) -> dict[str, KnowledgeBase]:
        """The people of the training split, with a part of the questions for each split."""
        known = super().knowledge_bases["train"]
        cut = round(self.held_out_fraction * len(known.questions))
        parts = {"held_out": known.questions[:cut], "train": known.questions[cut:]}
        return {split: KnowledgeBase(known.facts, questions) for split, questions in parts.items()}

    def demonstrate(self, index: int) -> str:
        *searches, answer = self.script(index)
        facts = self.knowledge_bases[self.split].facts
        pages = {self.call.format(query=name): page(name, facts[name]) for name in facts}
        return "".join(search + self.result.format(page=pages[search]) for search in searches) + answer
