"""Multi-hop questions such as "ba kin boss?": who is the boss of ba's kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.wiki.data import MOST, KnowledgeBase, knowledge_bases, path_of
from tasks.wiki.verify import verify


@dataclass(frozen=True)
class Wiki(AnswerTask):
    """Questions over a synthetic knowledge base; held-out people do not occur in training.

    Args:
        people: in both knowledge bases; above 675 their names have three letters. A policy that can learn few of them
            by heart has to read what it finds.
        relations: of each person to others.
        hops: facts that an answer takes, each found with the one before.
        call: how the expert asks for a page, with {query}: as the rollout's parser has it for the tool's name.
        split: "train" or "held_out".
        held_out_fraction: share of the people in the held-out knowledge base.
        seed: of the facts; part of the task, not of the run.
        expert_hops: number of a question's relations, from the first, that the expert's script follows; later ones are
            random. 0 demonstrates the format of searches and answers only. None follows all.
    """

    people: int = 8000
    relations: Sequence[str] = ("kin", "boss")
    hops: int = 2
    call: str = "?{query};"
    split: str = "train"
    held_out_fraction: float = 0.3
    seed: int = 0
    expert_hops: int | None = None

    name = "wiki"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        relations = tuple(self.relations)
        object.__setattr__(self, "relations", relations)  # configs give lists; a list is not hashable
        if not relations or len(set(relations)) < len(relations) or not all(len(r) > 2 for r in relations):
            raise ValueError(
                f"task {self.name!r}: relations must be distinct words of 3 letters or more, got {relations}"
            )
        fewest = int(min(self.held_out_fraction, 1 - self.held_out_fraction) * self.people)
        if self.people > MOST or fewest <= len(relations) + 1 or self.hops < 1:
            raise ValueError(
                f"task {self.name!r}: needs 1 hop or more, at most {MOST} people and more than "
                f"{len(relations) + 1} in each knowledge base, got hops={self.hops}, people={self.people}"
            )

    @property
    def knowledge_bases(self) -> dict[str, KnowledgeBase]:
        """Knowledge bases of both splits."""
        return knowledge_bases(self.people, tuple(self.relations), self.hops, self.held_out_fraction, self.seed)

    @property
    def _knowledge_base(self) -> KnowledgeBase:
        return self.knowledge_bases[self.split]

    def __len__(self) -> int:
        return len(self._knowledge_base.questions)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        question = self._knowledge_base.questions[index]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": " ".join(question) + "?"},),
            answer=path_of(question, self._knowledge_base)[-1],
        )

    def on(self, split: str) -> Wiki:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def script(self, index: int) -> list[str]:
        question = self._knowledge_base.questions[index]
        if self.expert_hops is not None:
            rng = derive_rng("wiki", "wandering", self.seed, index)
            detour = [self.relations[int(rng.integers(len(self.relations)))] for _ in question[1:]]
            question = (*question[: 1 + self.expert_hops], *detour[self.expert_hops :])
        path = path_of(question, self._knowledge_base)
        return [*(self.call.format(query=name) for name in path[:-1]), self.write_answer(path[-1])]
