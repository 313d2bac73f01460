"""Proposals of questions, judged by the facts: does the question have the answer that it was proposed for?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.core.types import Prompt
from tasks.wiki.data import path_of
from tasks.wiki.task import Wiki


@dataclass(frozen=True)
class ProposingWiki(Wiki):
    """Wiki whose problems can be names, for which a proposer of self-play by search has to write a question.

    The facts judge the question, which is for held-out problems: data.evaluation.task={propose: true}.

    Args:
        propose: False has the problems of `Wiki`.
        proposer_prompt: as the rollout has it, with {answer}.
    """

    propose: bool = False
    proposer_prompt: str = "{answer}!"

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        if not self.propose:
            return prompt
        text = self.proposer_prompt.replace("{answer}", prompt.answer)
        return replace(prompt, messages=({"role": "user", "content": text},))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the facts give the question the prompt's answer; a question has a name and relations, and a ?."""
        if not self.propose:
            return super().verify(answer, prompt)
        name, *relations = answer.strip().removesuffix("?").split() or [""]
        known = name in self._knowledge_base.facts and set(relations) <= set(self.relations)
        asked = answer.strip().endswith("?") and known and relations
        return {"exact": float(bool(asked) and path_of((name, *relations), self._knowledge_base)[-1] == prompt.answer)}

    def demonstrate(self, index: int) -> str:
        if not self.propose:
            return super().demonstrate(index)
        return " ".join(self._knowledge_base.questions[index]) + "?"

    def script(self, index: int) -> list[str]:
        if not self.propose:
            return super().script(index)
        return [self.call.format(query=self[index].answer), self.demonstrate(index)]
