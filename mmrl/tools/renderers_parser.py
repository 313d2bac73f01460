"""Tool calls in the syntax of a model family of the package renderers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.installation.optional_packages import import_optional
from mmrl.files.pretrained import load_pretrained
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.tools.base import BadArguments, Tool
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.chat_parser import ChatParser

_NEED = "rollout.parser RenderersParser"
_QUESTION = {"role": "user", "content": "?"}


@dataclass(frozen=True, kw_only=True)
class RenderersParser(ChatParser):
    """Parser of the call syntax of about thirty model families, by the package renderers.

    The text of a turn is tokenised for the parser alone: the ids that are trained on stay those that were sampled. The
    conversation is written by the policy's own chat template, as with every other parser.

    Args:
        family: as the package names it, such as "qwen3", "qwen3.5", "glm-4.5", "gpt-oss", "kimi-k2", "deepseek-v3",
            "minimax-m2", "gemma4", "llama-3".
        tokenizer: `model.policy.path`, whose tokenizer has the special tokens of the family.
    """

    packages = ("renderers", "httpx")
    family: str
    tokenizer: str
    thought_end: str = field(default="", init=False)

    def __post_init__(self) -> None:
        build_renderer(self.family, self.tokenizer)

    def parse(self, text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
        return self.parse_turn(text, [tool.schema_as(name) for name, tool in tools.items()])

    def parse_calls(self, text: str) -> list[ToolCall]:
        return self.parse_turn(text, [])

    def parse_turn(self, text: str, schemas: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
        """Parse a turn, its reasoning included; formats without quotes are read by the types of the schemas."""
        calls = []
        for call in self._read(text, schemas).tool_calls:
            if call.status != "ok" or not isinstance(call.arguments, dict) or not call.name:
                raise BadArguments(f"{str(call.status).replace('_', ' ')} in {call.raw[:200]!r}")
            calls.append(ToolCall(call.name, call.arguments))
        return calls

    def _read(self, text: str, schemas: Sequence[Mapping[str, Any]]) -> Any:
        renderer, tokenizer = build_renderer(self.family, self.tokenizer)
        ids = tokenizer.encode(text, add_special_tokens=False)
        return renderer.parse_response(ids, tools=list(schemas) or None)

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        renderer, tokenizer = build_renderer(self.family, self.tokenizer)
        functions = [
            {"id": f"call_{n}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for n, call in enumerate(calls)
        ]
        reply = {"role": "assistant", "content": "", "tool_calls": functions}
        start = renderer.render_ids([_QUESTION, {"role": "assistant", "content": ""}])
        ids = renderer.render_ids([_QUESTION, reply])
        # what the calls add: both begin alike and end alike
        first = next((n for n, (one, other) in enumerate(zip(ids, start)) if one != other), min(len(ids), len(start)))
        last, most = 0, min(len(ids), len(start)) - first
        while last < most and ids[-1 - last] == start[-1 - last]:
            last += 1
        return _decode(tokenizer, ids[first : len(ids) - last]).strip()

    def read_content(self, text: str) -> str:
        return self.cut_calls(text).rstrip()

    def cut_calls(self, text: str) -> str:
        calls = self._read(text, []).tool_calls
        if not calls or calls[0].token_span is None:
            return self._read(text, []).content
        _, tokenizer = build_renderer(self.family, self.tokenizer)
        return _decode(tokenizer, tokenizer.encode(text, add_special_tokens=False)[: calls[0].token_span[0]])

    def example(self) -> str:
        return self.write_calls([ToolCall("NAME", {"ARGUMENT": "VALUE"})])


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of ids as it is written, spaces before punctuation included."""
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


@functools.lru_cache(maxsize=8)
def build_renderer(family: str, tokenizer: str) -> tuple[Any, Any]:
    """Build the renderer of a family and its tokenizer.

    Raises:
        MissingPackageError: the package is not installed.
        ValueError: the package does not know the family, or the tokenizer lacks a special token of it.
    """
    import_optional("httpx", _NEED)
    renderers = import_optional("renderers", _NEED)
    from transformers import AutoTokenizer

    loaded = load_pretrained(AutoTokenizer, **locate_checkpoint(tokenizer))
    try:
        config = renderers.config_from_name(family)
    except (KeyError, ValueError) as error:
        raise ValueError(f"rollout.parser.family={family!r}: {error}") from error
    try:
        return renderers.create_renderer(loaded, config), loaded
    except AssertionError as error:
        raise ValueError(
            f"rollout.parser: the tokenizer of {tokenizer!r} is not one of family={family!r}: {error}"
        ) from error
