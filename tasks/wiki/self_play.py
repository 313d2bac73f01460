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
    question behind the pages of such a search and pages of others, answered without a search. Held-out problems are
    those of `Wiki`.

    Args:
        proposer_prompt: as the rollout has it, with {answer}.
        check_prompt: as the rollout has it, with {documents} and {question}.
        top: pages of a search, as the tool has it.
        noise: pages of others in a check.
    """

    proposer_prompt: str = "{answer}!"
    check_prompt: str = "{documents}: {question}"
    top: int = 2
    noise: int = 2

    def kind(self, index: int) -> str:
        return KINDS[index % len(KINDS)] if self.split == "train" else "solve"

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        text = {
            "solve": lambda: prompt.messages[0]["content"],
            "propose": lambda: self.proposer_prompt.replace("{answer}", prompt.answer),
            "check": lambda: self._check(index, prompt.answer),
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

    def _check(self, index: int, answer: str) -> str:
        """Return a check: a search's result for the answer, which has the person that the question is about."""
        facts, rng = self._knowledge_base.facts, derive_rng("wiki", "check", self.seed, index)
        names = list(facts)
        others = [names[int(i)] for i in rng.integers(len(names), size=self.top - 2 + self.noise)]
        results = [[answer, self._path(index)[-2], *others[: self.top - 2]], others[self.top - 2 :]]
        pages = ["; ".join(page(name, facts[name]) for name in result) for result in results if result]
        documents = "\n\n".join(pages[int(i)] for i in rng.permutation(len(pages)))
        return self.check_prompt.replace("{documents}", documents).replace("{question}", self._short_question(index))
