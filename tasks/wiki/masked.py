"""Pages of the wiki with masked names, which a search can fill in: "ba kin * boss ru; xi kin mo boss *?"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.wiki.data import page
from tasks.wiki.task import Wiki

QUESTION, MASK = "question", "*"


@dataclass(frozen=True)
class MaskedWiki(Wiki):
    """Masked passages of several sizes in turn (RAMP of MaskSearch), and questions as in `Wiki`.

    A passage has one page for each mask, of different people, and on each the name of one relation is a star. The
    answer is the names in their order. The script searches each page and then writes the names; with `expert_hops`
    it searches the first ones alone, and the other names are drawn. `info["kind"]` is "question", or "masks" and their
    number. Held-out problems are questions.
    Source: MaskSearch, 2025, section 2.1, arXiv:2505.20285.

    Args:
        masks: numbers of masks of the training problems, in turn; 0 is a question.
    """

    masks: Sequence[int] = (1, 2, 3, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "masks", tuple(self.masks))  # configurations give lists
        fewest = min(len(part.facts) for part in self.knowledge_bases.values())
        if not self.masks or min(self.masks) < 0 or max(self.masks) > fewest:
            raise ValueError(
                f"task {self.name!r}: masks must be numbers from 0 to {fewest}, the people of a knowledge base, got "
                f"{list(self.masks)}"
            )

    def count_masks(self, index: int) -> int:
        """Return the number of masks of a problem, 0 for a question."""
        return self.masks[index % len(self.masks)] if self.split == "train" else 0

    def __getitem__(self, index: int) -> Prompt:
        prompt, count = super().__getitem__(index), self.count_masks(index)
        if not count:
            return replace(prompt, info={"kind": QUESTION})
        facts, pages = self._knowledge_base.facts, []
        for name, relation in self._spans(index):
            pages.append(page(name, {**facts[name], relation: MASK}))
        answer = " ".join(facts[name][relation] for name, relation in self._spans(index))
        message = {"role": "user", "content": "; ".join(pages) + "?"}
        return replace(prompt, messages=(message,), answer=answer, info={"kind": f"masks{count}"})

    def script(self, index: int) -> list[str]:
        if not self.count_masks(index):
            return super().script(index)
        spans, facts = self._spans(index), self._knowledge_base.facts
        known = len(spans) if self.expert_hops is None else self.expert_hops
        rng = derive_rng("wiki", "drawn names", self.seed, index)
        people = list(facts)
        names = [
            facts[name][relation] if place < known else people[int(rng.integers(len(people)))]
            for place, (name, relation) in enumerate(spans)
        ]
        searches = [self.call.format(query=name) for name, _ in spans[:known]]
        return [*searches, self.write_answer(" ".join(names))]

    def _spans(self, index: int) -> list[tuple[str, str]]:
        """Return the people of a passage, and the relation that is masked on the page of each."""
        rng = derive_rng("wiki", "masked", self.split, self.seed, index)
        people = list(self._knowledge_base.facts)
        chosen = rng.choice(len(people), size=self.count_masks(index), replace=False)
        return [(people[i], self.relations[int(rng.integers(len(self.relations)))]) for i in chosen]
