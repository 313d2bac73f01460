"""Base of tasks whose verifier reads the answer that an extractor finds in the completion."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.types import Episode, Prompt, Task
from mmrl.rewards.answers.spelling import write_like
from mmrl.rewards.extract import Answer, Extractor, build_extractor, remove_thoughts
from tasks.checks import reply_text

_EXAMPLES = 4  # right answers that show the forms of a task's answers


@dataclass(frozen=True, kw_only=True)
class AnswerTask(Task):
    """Task with short answers that are read by a verifier.

    Args:
        extract: how the answer is found in a completion: text, last_number, boxed, tags, marker, choice, json, code,
            answer, or {name: {parameter: value}}; None hands the completion without its thoughts to the verifier. With
            answer, separators and capitals are also free where the task's own answers show their form (`write_like`).
        state_form: end the user's last turn with the form of an answer: a right answer to another training problem, as
            the extractor finds it. It is for models that were not trained on the task's demonstrations.
    """

    extract: str | dict[str, Any] | None = None
    state_form: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__getitem__" in cls.__dict__:
            cls.__getitem__ = _state_form(cls.__dict__["__getitem__"])  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        if self.extract is not None:
            build_extractor(self.extract)
        if not isinstance(self.state_form, bool):
            raise ValueError(f"task {self.name!r}: state_form must be true or false, got {self.state_form!r}")

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
        answer = self.extractor(reply_text(episode))
        if answer is not None and isinstance(self.extractor, Answer):
            answer = write_like(answer, self._form_examples)
        episode.info["extracted"] = answer
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

    @functools.cached_property
    def _plain(self) -> Any:
        """This task without the form in its prompts."""
        return replace(self, state_form=False)

    @functools.cached_property
    def _form_examples(self) -> tuple[str, ...]:
        """Right answers to the first training problems; empty for a task that demonstrates none."""
        try:
            train = self._plain.on("train")
            return tuple(train.demonstrate(index) for index in range(min(_EXAMPLES, len(train))))
        except (NotImplementedError, ValueError):
            return ()

    def add_form(self, prompt: Prompt, is_first: bool) -> Prompt:
        """Return a prompt whose last turn ends with the form of an answer.

        Args:
            prompt: of this task.
            is_first: whether it is the first training problem, whose own answer is not shown.

        Raises:
            ValueError: there is neither an answer to another problem to show nor an extractor.
        """
        examples = self._form_examples[1:] if is_first else self._form_examples
        if not examples and self.extractor is None:
            raise ValueError(
                f"task {self.name!r}: state_form has no right answer to another problem to show; set task.extract, "
                "whose form is stated then, or write the form into the question"
            )
        form = _LEAD + examples[0] if examples else _LEAD_PLAIN + self.write_answer("...")
        *before, last = prompt.messages
        content = last["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        text = parts.pop()["text"] if parts and parts[-1]["type"] == "text" else ""
        parts.append({"type": "text", "text": text + form})
        stated = text + form if isinstance(content, str) else parts
        return replace(prompt, messages=(*before, {**last, "content": stated}))


_LEAD = "\n\nEnd with your answer in the form of this one, which answers another question:\n"
_LEAD_PLAIN = "\n\nEnd with your answer in this form:\n"


def _state_form(read: Callable[[Any, int], Prompt]) -> Callable[[Any, int], Prompt]:
    """Wrap a task's `__getitem__` so that its prompts state the form of an answer where the task is asked to."""

    @functools.wraps(read)
    def read_stated(self: AnswerTask, index: int) -> Prompt:
        if not self.state_form:
            return read(self, index)
        prompt = read(self._plain, index)
        return self.add_form(prompt, is_first=index == 0 and getattr(self, "split", "") == "train")

    return read_stated
