"""Base of tasks whose verifier reads the answer that an extractor finds in the completion."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from mmrl.rewards.extract import Extractor, build_extractor, remove_thoughts
from mmrl.types import Episode, Prompt, Task
from tasks.checks import reply_text


@dataclass(frozen=True, kw_only=True)
class AnswerTask(Task):
    """Task with short answers that are read by a verifier.

    Args:
        extract: how the answer is found in a completion: text, last_number, boxed, tags, marker, choice, json, code,
            answer, or {name: {parameter: value}}; None hands the completion without its thoughts to the verifier.
    """

    extract: str | dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.extract is not None:
            build_extractor(self.extract)

    @property
    def extractor(self) -> Extractor | None:
        return None if self.extract is None else build_extractor(self.extract)

    @abstractmethod
    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """Return the named scores of an extracted answer; "" if there is none."""

    def read_answer(self, episode: Episode) -> str | None:
        """Return what the extractor finds, or the completion without its thoughts; None if there is no answer."""
        if self.extractor is None:
            return remove_thoughts(reply_text(episode))
        episode.info["extracted"] = answer = self.extractor(reply_text(episode))
        return answer

    def score_format(self, answer: str | None) -> dict[str, float]:
        """Return format: 1 if the extractor found an answer; nothing without an extractor."""
        return {} if self.extract is None else {"format": float(answer is not None)}

    def score(self, episode: Episode) -> dict[str, float]:
        answer = self.read_answer(episode)
        return {**self.score_format(answer), **self.verify(answer or "", episode.prompt)}

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        """Names of the scores of an episode, which are those of a completion without an answer."""
        return tuple({**self.score_format(None), **self.verify("", prompt)})

    def write_answer(self, answer: str) -> str:
        """Write an answer as the extractor finds it, for demonstrations."""
        return answer if self.extractor is None else self.extractor.write(answer)
