"""How requests become a policy's context, and its completions messages with calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.core.types import Completion, Sampling
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.images import separate_images
from mmrl.engines.endpoint.messages import Message, text_length
from mmrl.engines.endpoint.reply import ChatChoice
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.tools.base import ToolError
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.chat_parser import ChatParser, HermesParser, add_to_system

if TYPE_CHECKING:
    from mmrl.policies.base import Policy


class ChatFormat:
    """Write conversations by a policy's chat template, and read its completions.

    Args:
        policy: a text or vision-language policy.
        parser: of the calls that the policy writes; None for the syntax of Hermes and Qwen.
    """

    def __init__(self, policy: Policy, parser: ChatParser | None = None):
        self.policy: Any = policy
        self.parser = parser or HermesParser()

    def clean(self, text: str) -> str:
        """Break special tokens in a text of a client."""
        return self.policy.break_special_tokens(text)

    def observe(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the raw observation of a conversation; tools are in the template or in the system message.

        Raises:
            RequestError: the template cannot write the conversation, or it is longer than any that the model reads.
        """
        length, characters = self.policy.context_length, sum(map(text_length, messages))
        if length is not None and characters > length * self.policy.token_characters:
            raise RequestError(
                f"the messages have {characters} characters, more than {length} tokens can spell; shorten them",
                "messages",
                "context_length_exceeded",
            )
        try:
            written, images = separate_images(self._write_calls(messages))
            if not tools:
                return {"messages": tuple(written), "images": images}
            if self.policy.template_shows_tools(tools):
                return {"messages": tuple(written), "images": images, "tools": list(tools)}
            return {"messages": add_to_system(written, self.parser.describe_tools(tools)), "images": images}
        except ValueError as error:
            raise RequestError(str(error), "messages") from error

    def _write_calls(self, messages: Sequence[Message]) -> list[Message]:
        """Write the calls of a history into its contents where the chat template would leave them out."""
        calls = next((message["tool_calls"] for message in messages if message.get("tool_calls")), None)
        if calls is None or self.policy.processor.chat_template is None or self.policy.template_shows_calls(calls):
            return list(messages)
        out = []
        for message in messages:
            if message.get("tool_calls"):
                functions = [ToolCall(**call["function"]) for call in message["tool_calls"]]
                text = "\n".join(filter(None, (message["content"], self.parser.write_calls(functions))))
                message = {**{k: v for k, v in message.items() if k != "tool_calls"}, "content": text}
            out.append(message)
        return out

    def encode(self, raw: Mapping[str, Any]) -> Tensor:
        """Return the ids [P] of a conversation as the template writes it.

        Raises:
            RequestError: as `observe`.
        """
        try:
            return self.policy.encode(raw)["input_ids"]
        except ValueError as error:
            raise RequestError(str(error), "messages") from error

    def continue_turn(self, raw: Mapping[str, Any], further: int, last_id: int) -> Tensor | None:
        """Return the ids between a sampled turn and the next one; None where the template has no such continuation.

        Args:
            raw: observation of the whole conversation.
            further: number of its messages after the sampled turn.
            last_id: last id of that turn.
        """
        messages, results = raw["messages"][:-further], raw["messages"][-further:]
        try:
            ids = self.policy.encode_tool_results(messages, results, raw.get("tools"), last_id)
        except ValueError:  # the template writes earlier turns in another way, or no end of a turn
            return None
        return torch.tensor(ids, dtype=torch.long)

    def limit_tokens(self, sampling: Sampling, context: int) -> Sampling:
        """Return the sampling parameters with at most as many tokens as the model has positions left.

        Raises:
            RequestError: the context leaves none.
        """
        length = self.policy.context_length
        if length is None:
            return sampling
        if context >= length:
            raise RequestError(
                f"the conversation has {context} tokens and the model {length} positions; shorten the messages",
                "messages",
                "context_length_exceeded",
            )
        return replace(sampling, max_tokens=min(sampling.max_tokens, length - context))

    def read_choice(self, done: Completion, request: ChatRequest, stop: Sequence[str]) -> ChatChoice:
        """Read a completion: its text up to a stop string, or its calls."""
        ids = done.action.tolist()
        text, turn = (_cut(each, stop) for each in (str(done.output), self.policy.turn_text(ids)))
        calls, malformed = self._read_calls(turn, request.tools) if request.reads_calls else ([], False)
        message: Message = {"role": "assistant", "content": turn if malformed else text}
        if calls:
            first = sum(len(each.get("tool_calls", ())) for each in request.messages)
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            message["content"] = self.parser.read_content(turn)
            message["tool_calls"] = [  # Mistral wants ids of 9 letters
                {"id": f"call{first + number:05}", "type": "function", "function": function}
                for number, function in enumerate(functions)
            ]
        finish = "length" if done.ended == "length" else "tool_calls" if calls else "stop"
        tokens = list(zip(self.policy.token_texts(ids), done.behavior_logprobs.tolist()))
        return ChatChoice(message, finish, tokens, malformed)

    def _read_calls(self, turn: str, tools: Sequence[Mapping[str, Any]]) -> tuple[list[ToolCall], bool]:
        """The calls of a turn, and whether they cannot be read."""
        try:
            return self.parser.parse_turn(turn, tools), False
        except ToolError:
            return [], True


def _cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    ends = [text.find(each) for each in stop if each in text]
    return text[: min(ends)] if ends else text
