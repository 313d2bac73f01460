"""Checks, before the first step, that every prompt and its completion fit into the policy's context."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

from mmrl.core.types import AssistantMessage, Prompt, Task
from mmrl.policies.base import Policy

Observe = Callable[[Prompt], Mapping[str, Any]]
"""The raw observation that the policy reads of a prompt."""
_OWN: Observe = attrgetter("observation")
_TEXT = "text"  # key of a content part of a message


def check_prompt_lengths(
    task: Task, policy: Policy, max_tokens: int, observe: Observe = _OWN, imitated: bool = False
) -> None:
    """Refuse a task with a prompt that does not fit into the policy's context together with its completion.

    Prompts that cannot stand in one batch of the policy are refused, with the first one that differs from those before.
    Texts with tokens that stand for other inputs of the policy, such as an image's, are refused too, and messages
    with fields that its chat template leaves out.

    The rows of a file are read in any case. A prompt is only tokenised where its number of characters does not decide
    already. A task whose answers are texts must leave room for them too: no reply to it could be right otherwise.

    Args:
        task: on the split that is used.
        policy: its `context_length` is the limit; None for no check.
        max_tokens: longest completion, tokens.
        observe: the raw observation of a prompt; a rollout with tools adds their descriptions.
        imitated: whether the answers are learned as they stand, with calls of tools and reasoning.
    """
    limit, reserved = policy.context_length, policy.reserved_texts
    if limit is None and not reserved:
        len(task)  # reads the file and refuses malformed rows
        return
    lengths = _Lengths(policy, sys.maxsize if limit is None else limit, observe, beside=True)
    for prompt in task.prompts_to_check():
        if not prompt.messages:
            continue  # an initial state of a simulator has no text
        place = prompt.place or prompt.key
        _refuse_reserved(prompt, reserved, place)
        count, tokens = lengths.prompt(prompt, max_tokens)
        if tokens + max_tokens > lengths.limit:
            raise ValueError(
                f"{place}: the prompt has {count} tokens and sampling.max_tokens={max_tokens} come after it, more than "
                f"the model's context of {limit} (max_position_embeddings); shorten the prompt, lower "
                "sampling.max_tokens, or choose a model with a longer context"
            )
        if isinstance(answer := prompt.answer, str):
            if imitated and isinstance(answer, AssistantMessage):
                with _name_place(place):
                    answer = policy.write_turn(observe(prompt), answer)
            answer_count, answer_tokens = lengths.text(answer, lengths.limit - tokens)
            if tokens + answer_tokens > lengths.limit:
                raise ValueError(
                    f"{place}: the prompt has {count} tokens and its answer {answer_count}, more than the model's "
                    f"context of {limit} (max_position_embeddings); shorten the answer or choose a model with a longer "
                    "context"
                )


def _refuse_reserved(prompt: Prompt, reserved: Sequence[str], place: str) -> None:
    """Refuse texts with tokens that stand for other inputs."""
    texts = [text for message in prompt.messages for text in _texts(message)]
    texts += [prompt.answer] if isinstance(prompt.answer, str) else []
    for token in reserved:
        if any(token in text for text in texts):
            raise ValueError(
                f"{place}: a text holds {token!r}, which stands for an image or another input of this policy; bring "
                "the image with the row, or write the text in another way"
            )


@contextmanager
def _name_place(place: str) -> Iterator[None]:
    """Put the place of a row before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def drop_long_prompts(task: Task, policy: Policy, observe: Observe = _OWN) -> Task:
    """Drop the prompts that are longer than the task's own limit, in tokens of this policy."""
    lengths: dict[int, _Lengths] = {}

    def fits(prompt: Prompt, limit: int) -> bool:
        return lengths.setdefault(limit, _Lengths(policy, limit, observe)).prompt(prompt, 0)[1] <= limit

    return task.drop_long_prompts(fits)


class _Lengths:
    """Token counts of prompts; an upper bound is used where it is sufficient.

    Args:
        policy: that encodes them.
        limit: of tokens.
        observe: the raw observation of a prompt.
        beside: also check that the encoded prompts can stand in one batch.
    """

    def __init__(self, policy: Policy, limit: int, observe: Observe, beside: bool = False):
        self.policy, self.limit, self.observe, self.beside = policy, limit, observe, beside
        self._shapes: dict[Hashable, Mapping[str, Any]] = {}  # the first encoded prompt with each set of inputs
        self._around: dict[Hashable, int] = {}

    def prompt(self, prompt: Prompt, more: int) -> tuple[str, int]:
        """Number of tokens of a prompt, as text and as a number; an upper bound if that plus `more` fits."""
        messages = list(prompt.messages)
        shapes = (
            *(image.shape for image in prompt.images),
            *((video.frames.shape, str(video.metadata())) for video in prompt.videos),
        )
        frame = (shapes, str(prompt.tools), tuple(str(_with_text(message, "")) for message in messages))
        if frame not in self._around:  # tokens of the template and the images
            short = replace(prompt, messages=tuple(_with_text(message, "x") for message in messages))
            self._around[frame] = self._count(short)
        content = "".join(text for message in messages for text in _texts(message))
        return self._bound_tokens(content, self._around[frame], more, lambda: self._count(prompt))

    def _count(self, prompt: Prompt) -> int:
        with _name_place(prompt.place or prompt.key):
            observation = self.policy.encode(self.observe(prompt))
            if self.beside:
                self._shapes.setdefault(tuple(sorted(observation)), observation)
                self.policy.check_batch([*self._shapes.values(), observation])
            return len(observation["input_ids"])

    def text(self, text: str, room: int) -> tuple[str, int]:
        """Number of tokens of a text, as text and as a number; an upper bound if it fits into `room`."""
        return self._bound_tokens(text, 0, self.limit - room, lambda: len(self.policy.tokenize(text)))

    def _bound_tokens(self, text: str, around: int, more: int, count: Callable[[], int]) -> tuple[str, int]:
        longest = self.limit * self.policy.token_characters
        if len(text) > longest:  # too long for any tokenisation; tokenising could take minutes
            return f"more than {self.limit}", self.limit + 1
        most = around + max(_bytes(text), _bytes(unicodedata.normalize("NFKC", text)))
        if most + more <= self.limit:
            return f"at most {most}", most
        tokens = count()
        return str(tokens), tokens


def _bytes(text: str) -> int:
    """Upper bound of the number of tokens: a text has at most one token per byte."""
    return len(text.encode())


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part[_TEXT] for part in content if part.get(_TEXT) is not None]


def _with_text(message: dict[str, Any], text: str) -> dict[str, Any]:
    """Copy a message with all its texts replaced."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": text}
    return {**message, "content": [part if part.get(_TEXT) is None else {**part, _TEXT: text} for part in content]}
