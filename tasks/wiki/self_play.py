"""The wiki with demonstrations of all that self-play by search needs: solving, proposing and the check."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.wiki.data import page, path_of
from tasks.wiki.task import Wiki

KINDS = ("solve", "propose", "check")


@dataclass(frozen=True)
class SelfPlayWiki(Wiki):
    """Wiki whose training problems are of three kinds in turn, for a start of self-play by search.

    solve: as `Wiki`. propose: the name of a person, whose script searches that name and writes a question of one
    relation; where several questions have that answer, it may be one whose page the search does not return. check: that
    question behind the results of a search of two pages and of searches of others, answered without a search. Held-out
    problems are those of `Wiki`.

    Args:
        proposer_prompt: as the rollout has it, with {answer}.
        check_prompt: as the rollout has it, with {documents} and {question}.
        noise: results of other questions in a check. Every result has its own answer twice, so that the question is
            needed.
    """

    proposer_prompt: str = "{answer}!"
    check_prompt: str = "{documents}: {question}"
    noise: int = 1

    def kind(self, index: int) -> str:
        return KINDS[index % len(KINDS)] if self.split == "train" else "solve"

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        text = {
            "solve": lambda: prompt.messages[0]["content"],
            "propose": lambda: self.proposer_prompt.replace("{answer}", prompt.answer),
            "check": lambda: self._check(index),
        }[self.kind(index)]()
        return replace(prompt, messages=({"role": "user", "content": text},))

    def script(self, index: int) -> list[str]:
        kind, answer = self.kind(index), super().__getitem__(index).answer
        if kind == "solve":
            return super().script(index)
        if kind == "check":
            return [answer]
        return [self.call.format(query=answer), self._short_question(index)]

    def _path(self, index: int) -> list[str]:
        return path_of(self._knowledge_base.questions[index], self._knowledge_base)

    def _short_question(self, index: int) -> str:
        """Return the question of the last relation alone."""
        return f"{self._path(index)[-2]} {self._knowledge_base.questions[index][-1]}?"

    def _check(self, index: int) -> str:
        """Return a check: the question behind results of searches for its answer and for those of other questions."""
        rng = derive_rng("wiki", "check", self.seed, index)
        results = [index, *(int(i) for i in rng.integers(len(self), size=self.noise))]
        documents = "\n\n".join(self._find_pages(results[int(i)]) for i in rng.permutation(len(results)))
        return self.check_prompt.replace("{documents}", documents).replace("{question}", self._short_question(index))

    def _find_pages(self, index: int) -> str:
        """Return the page of a question's answer and a page that names it, as a search for the answer does."""
        *_, person, answer = self._path(index)
        facts = self._knowledge_base.facts
        return "; ".join(page(name, facts[name]) for name in (answer, person))
