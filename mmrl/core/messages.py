"""Messages of the assistant that a policy imitates, with calls of tools and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AssistantMessage(str):
    """A demonstrated message of the assistant that has more than text: calls of tools, or reasoning.

    As a text it is the message's content. A text policy's `encode_demonstration` writes all of it by the chat template.

    Args:
        text: content of the message.
        fields: the whole message: role, content, tool_calls, reasoning_content and so on.
    """

    fields: Mapping[str, Any]

    def __new__(cls, text: str, fields: Mapping[str, Any] | None = None) -> AssistantMessage:
        message = super().__new__(cls, text)
        message.fields = dict(fields or {"role": "assistant", "content": text})
        return message


def assistant_message(output: str) -> dict[str, Any]:
    """Return the chat message of a demonstrated answer, which is a text or an `AssistantMessage`."""
    if isinstance(output, AssistantMessage):
        return dict(output.fields)
    return {"role": "assistant", "content": output}
