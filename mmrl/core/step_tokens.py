"""Tokens of an answer in steps: each step ends with a separator, at whose end a process reward model scores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def tokenize_steps(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], steps: Sequence[str], separator: str
) -> tuple[list[int], list[int]]:
    """Token ids of prompt and steps, and the position of the last token of the separator after each step.

    The prompt is written by the chat template, up to where the assistant's turn begins; without a template it is BOS
    and its text. Steps and separators are tokenised one by one, as TRL's PRMTrainer does, so that no token is in two.
    """
    mark = tokenizer(separator, add_special_tokens=False)["input_ids"]
    if not mark:
        raise ValueError(f"separator {separator!r} has no token; name a text with which a step ends")
    if tokenizer.chat_template is None:
        prompt = (tokenizer.bos_token or "") + "\n".join(message["content"] for message in messages)
    else:
        prompt = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    ids = list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    ends = []
    for step in steps:
        ids += [*tokenizer(step.removesuffix(separator), add_special_tokens=False)["input_ids"], *mark]
        ends.append(len(ids) - 1)
    return ids, ends
