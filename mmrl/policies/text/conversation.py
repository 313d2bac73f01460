"""Conversations as a chat template writes them: the assistant's turns, tool results between, and what it leaves out.

A template silently leaves out what it does not name. `ChatFields` tries each field of messages once: a short
conversation is written with it and without it, and a template that writes both alike does not read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    # the conversation up to the call, and with the results and the opened next turn
    before, after = render(list(messages), False), render([*messages, *results], True)
    if not after.startswith(before):
        raise ValueError(
            "the chat template writes earlier turns in another way once tool results follow, so a conversation is not "
            "the beginning of its continuation; use a template that keeps them, or a TagParser"
        )
    # last end token of the assistant's turn; the template may write a newline behind it
    end, position = max(((token, before.rfind(token)) for token in end_tokens), key=lambda pair: pair[1])
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
        content = " ".join(str(entry) for key, entry in message.items() if key != "role")
        if matches := [token for token in end_tokens if token in content]:
            raise ValueError(f"the message {content[:80]!r} holds {matches[0]}, which ends turns; delete it")
        if message["role"] != "assistant":
            continue
        # the generation prompt of this turn ends where the policy would begin to write
        before = render(list(messages[:position]), True)
        if not text.startswith(before):
            raise ValueError(
                f"the chat template writes the messages before number {position} in another way once later ones "
                "follow, so the policy never answers after this text; use a template that keeps them"
            )
        # first end token behind it, else the end of the rendered turn
        ends = [at + len(token) for token in end_tokens if (at := text.find(token, len(before))) >= 0]
        spans.append((len(before), min(ends) if ends else len(render(list(messages[: position + 1]), False))))
    return text, spans


Render = Callable[[list[dict[str, Any]], Any, bool], str]
"""The chat template: messages, tools, and whether the assistant's next turn is opened -> text."""
_TIED = (("tool", "tool_call_id"), ("tool", "name"))
"""They tie a result to its call; templates that write results in the order of the calls need neither."""
_CALL = {"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}}
_ASK = {"role": "user", "content": "?"}
_BEFORE = {"tool": [_ASK, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], "assistant": [_ASK]}


class ChatFields:
    """Fields of messages that a chat template reads, found out when they are first needed.

    Args:
        render: the chat template.
        place: name of the checkpoint, for messages.
    """

    def __init__(self, render: Render, place: str):
        self.render, self.place = render, place
        self._read: dict[tuple[str, str], bool] = {}

    def refuse_unread(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> None:
        """Raise ValueError for a field of a message, or for tools, that the template leaves out."""
        for role, key, value in list_fields(messages, tools):
            if not self.reads(role, key, value):
                what = "the tools of the prompt" if key == "tools" else f"{key!r} of a message of role {role!r}"
                raise ValueError(
                    f"{self.place}: the chat template does not write {what}, so the policy would not read it; write it "
                    "into a content, leave it out of the rows, or choose a model whose template shows it"
                )

    def reads(self, role: str, key: str, value: Any) -> bool:
        """Whether the template reads a field of messages of a role; `value` is an example."""
        if (role, key) not in self._read:
            self._read[role, key] = self._changes(role, key, value)
        return self._read[role, key]

    def _changes(self, role: str, key: str, value: Any) -> bool:
        """Whether a short conversation is written in another way with the field."""
        try:
            if key == "tools":
                return self.render([_ASK], value, True) != self.render([_ASK], None, True)
            message = {"role": role, "content": "a"}
            texts = [
                self.render([*_BEFORE.get(role, ()), each, *([_ASK] if role == "system" else ())], None, False)
                for each in (message, {**message, key: value})
            ]
        except Exception:  # of a template that refuses such a conversation; the prompt itself will tell
            return True
        return texts[0] != texts[1]


def list_fields(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[tuple[str, str, Any]]:
    """Iterate over (role, key, value) of what a template has to read beside role and content."""
    if tools:
        yield "", "tools", tools
    for message in messages:
        for key, value in message.items():
            role = message["role"]
            if key not in ("role", "content") and value and (role, key) not in _TIED:
                yield role, key, value


def refuse_fields(messages: Sequence[Mapping[str, Any]], tools: Any, place: str) -> None:
    """Raise ValueError for what messages have beside role and content where there is no chat template to write it."""
    for role, key, _ in list_fields(messages, tools):
        what = "tools" if key == "tools" else f"{key!r} of a message of role {role!r}"
        raise ValueError(
            f"{place} has no chat template, so {what} would not be written; write it into a content, leave it out of "
            "the rows, or choose an instruction-tuned checkpoint"
        )


def find_opened_tag(render: Callable[[list[dict[str, Any]]], str], special: Sequence[str]) -> str:
    """Return a tag such as <think> with which a chat template ends every prompt, with the white space after it.

    Args:
        render: writes messages and opens the assistant's turn.
        special: tokens of the template that are no words of the assistant, unless they begin a thought.
    """
    for content in ("?", [{"type": "text", "text": "?"}]):  # templates of processors may take parts alone
        try:
            text = render([{"role": "user", "content": content}])
        except Exception:  # of any kind, in the template
            continue
        match = re.search(r"<[A-Za-z_]+>\s*$", text)
        is_named = match is not None and (match[0].strip() not in special or "think" in match[0])
        return match[0] if match is not None and is_named else ""
    return ""
