"""Turns in the text of a conversation, as its chat template writes them: the assistant's, and tool results between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def format_tool_results(
    render: Callable[[list[Message], bool], str],
    messages: Sequence[Message],
    results: Sequence[Message],
    end_tokens: Sequence[str],
    ended_by: str,
) -> str:
    """Return the text between the last token of an assistant's turn and the first one of its next turn.

    It is what the chat template adds to the conversation for the results, so that the ids of a whole conversation are
    those of the template, and nothing that the policy wrote is tokenised again.

    Args:
        render: the chat template: messages and whether the assistant's next turn is opened -> text.
        messages: the conversation up to the assistant's turn with the calls, that one included.
        results: messages of role "tool".
        end_tokens: tokens that end a turn of the model.
        ended_by: the last token of the assistant's turn; where it is not the template's end token, that is added.

    Raises:
        ValueError: the template rewrites earlier turns when results follow, so no row of tokens is a conversation.
    """
    before, after = render(list(messages), False), render([*messages, *results], True)
    if not after.startswith(before):
        raise ValueError(
            "the chat template writes earlier turns in another way once tool results follow, so a conversation is not "
            "the beginning of its continuation; use a template that keeps them, or a TagParser"
        )
    end, position = max(((token, before.rfind(token)) for token in end_tokens), key=lambda found: found[1])
    if position < 0:
        raise ValueError(f"the chat template ends an assistant's turn with none of {list(end_tokens)}")
    text = before[position + len(end) :] + after[len(before) :]
    return text if ended_by == end else end + text


def break_special_tokens(text: str, special: Sequence[str]) -> str:
    """Put a space into every special token in a text, so that a tool's result cannot end or open a turn."""
    for token in sorted(special, key=len, reverse=True):
        if token in text:
            text = text.replace(token, f"{token[:1]} {token[1:]}")
    return text


def assistant_spans(
    render: Callable[[list[Message], bool], str], messages: Sequence[Message], end_tokens: Sequence[str]
) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of a conversation and where in it the assistant writes, (start, end) in characters.

    A turn starts behind the generation prompt and ends with the first end token, that token included: what the policy
    samples when it answers there.

    Args:
        render: the chat template: messages and whether the assistant's next turn is opened -> text.
        messages: the whole conversation, whose last message is the assistant's.
        end_tokens: tokens that end a turn of the model; a template may write none.

    Raises:
        ValueError: the template writes earlier turns in another way once later ones follow, or a message holds an end
            token.
    """
    if not messages or messages[-1]["role"] != "assistant":
        raise ValueError("a conversation to imitate ends with the assistant's message; add the answer")
    text, spans = render(list(messages), False), []
    for position, message in enumerate(messages):
        written = " ".join(str(entry) for key, entry in message.items() if key != "role")
        if held := [token for token in end_tokens if token in written]:
            raise ValueError(f"the message {written[:80]!r} holds {held[0]}, which ends turns; delete it")
        if message["role"] != "assistant":
            continue
        before = render(list(messages[:position]), True)
        if not text.startswith(before):
            raise ValueError(
                f"the chat template writes the messages before number {position} in another way once later ones "
                "follow, so the policy never answers after this text; use a template that keeps them"
            )
        ends = [at + len(token) for token in end_tokens if (at := text.find(token, len(before))) >= 0]
        spans.append((len(before), min(ends) if ends else len(render(list(messages[: position + 1]), False))))
    return text, spans
