"""LanguageModelPolicy, base class of text policies: chat templates, stop ids, and exports of prompts and weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from mmrl.core.types import AssistantMessage, Sampling
from mmrl.policies.base import Policy
from mmrl.policies.text.adapters import Adapters, adapters_of, without_adapters
from mmrl.policies.text.architecture import find_switch
from mmrl.policies.text.checks.chat_template import chat_template_error
from mmrl.policies.text.conversation import (
    ChatFields,
    assistant_spans,
    break_special_tokens,
    find_opened_tag,
    format_tool_results,
    refuse_fields,
)
from mmrl.policies.text.loading import merge_lora, save_config, save_model
from mmrl.policies.text.tokenizer import join_messages

CANARY = "A canary sings in 7 mines, 12 of them dark. "
CANARY_TOKENS = 80  # longer than two blocks of an engine's prefix cache, so that stale blocks are detected


def refuse_mean(sampling: Sampling) -> None:
    """Refuse decode=mean, since tokens cannot be averaged."""
    if sampling.decode == "mean":
        raise ValueError("decode=mean averages over ordered choices; tokens have no order: use argmax or sample")


class LanguageModelPolicy(Policy):
    """Policy that generates text with a transformers model and its tokenizer or processor."""

    capturable = "decode_steps"
    model: Any
    processor: Any
    path: str | None
    template_arguments: dict[str, Any]
    forbidden: list[int]  # ids that stand for other inputs, such as images

    def refuse_long(self, tokens: int, new_tokens: int = 0) -> None:
        """Refuse a prompt that leaves no positions for a completion, and a row beyond `switch_length`."""
        if self.context_length is not None and tokens >= self.context_length:
            raise ValueError(
                f"a prompt of {tokens} tokens leaves no room for an answer in the {self.context_length} positions of "
                "the model (max_position_embeddings); shorten the prompts"
            )
        if self.switch_length is not None and tokens + new_tokens > self.switch_length:
            _, why = find_switch(self.model.config.get_text_config())  # type: ignore[misc]
            raise ValueError(
                f"a row of {tokens + new_tokens} tokens: {self.model.config.model_type} {why}; shorten the prompts or "
                "sampling.max_tokens"
            )

    def check_sampling(self, sampling: Sampling) -> None:
        refuse_mean(sampling)

    @property
    def tokenizer(self) -> Any:
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def context_length(self) -> int | None:
        """max_position_embeddings of the language model."""
        stated = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return stated if isinstance(stated, int) and stated > 0 else None

    @functools.cached_property
    def switch_length(self) -> int | None:
        """Tokens of a row up to which the model scores it as it was sampled; None for any number."""
        return (find_switch(self.model.config.get_text_config()) or (None,))[0]

    @functools.cached_property
    def token_characters(self) -> int:  # type: ignore[override]
        return max(map(len, self.tokenizer.get_vocab()))

    def engine_prompt(self, raw: Mapping[str, Any]) -> tuple[list[int], list[np.ndarray]]:
        """Return ids with one placeholder per image or video, and the images; engines expand them as `encode` does."""
        return self._chat_ids(list(raw["messages"]), raw.get("tools")), []

    def stop_ids(self, strings: Sequence[str]) -> tuple[list[int], list[str]]:
        """Return the ids that end a completion, and the stop `strings` that are not single special tokens."""
        special = set(strings) & set(self.tokenizer.all_special_tokens)
        ids = {*self._eos_ids(), *map(self.tokenizer.convert_tokens_to_ids, special)}
        return sorted(ids), [s for s in strings if s not in special]

    def stop_condition(self, strings: Sequence[str]) -> Callable[[Tensor], Tensor]:
        """Return the function that tells from ids [N, t] which rows [N] bool have ended."""
        ids, texts = self.stop_ids(strings)
        final = torch.tensor(ids)
        # a stop string ends in the newest token, and no character has more than four tokens
        reach = 4 * max((len(s) for s in texts), default=0) + 4

        def stops(ids: Tensor) -> Tensor:
            ended = torch.isin(ids[:, -1], final.to(ids.device))
            if texts:
                newest = self.tokenizer.batch_decode(ids[:, -reach:], skip_special_tokens=True)
                ended = ended | torch.tensor([any(s in text for s in texts) for text in newest], device=ids.device)
            return ended

        return stops

    def decode(self, ids: Sequence[int]) -> str:
        """Decode chosen ids to text, as `act` returns it."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        # several tokens can spell one character: the last of them has its text, those before have none
        texts, waiting = [], ()
        for i in ids:
            waiting = (*waiting[-3:], int(i))
            text = self._token_text(waiting)
            complete = "\ufffd" not in text or len(waiting) == 4
            texts.append(text if complete else "")
            waiting = () if complete else waiting
        return texts

    def _token_text(self, ids: tuple[int, ...]) -> str:
        """Text of ids behind another token, because tokenizers drop a space at the beginning."""
        texts = self.__dict__.setdefault("_token_text_cache", {})
        if ids not in texts:
            before = self.tokenizer.encode("a", add_special_tokens=False)[-1:]
            start, whole = (self.tokenizer.decode(part) for part in (before, [*before, *ids]))
            texts[ids] = whole[len(start) :]
        return texts[ids]

    def export_weights(self) -> dict[str, Tensor]:
        """Return the weights by transformers' checkpoint names: adapters merged, tied weights under each name."""
        model = merge_lora(self.model)
        state: dict[str, Tensor] = dict(model.state_dict())
        for name in model._keys_to_ignore_on_save or ():
            state.pop(name, None)
        return revert_weight_conversion(model, state)

    def adapters(self) -> Adapters:
        """Return the frozen base weights and the low-rank factors."""
        return adapters_of(self.model)

    def save_base(self, folder: Path) -> None:
        """Save model and tokenizer or processor in transformers' format, without adapters and value head."""
        save_model(without_adapters(self.model), folder)
        self.processor.save_pretrained(folder)

    def save_config(self, folder: Path) -> None:
        """Save configuration and tokenizer or processor in transformers' format, without weights."""
        save_config(self.model, folder)
        self.processor.save_pretrained(folder)

    def canary(self) -> Mapping[str, Any]:
        text = CANARY
        while len(self.tokenizer.encode(text, add_special_tokens=False)) < CANARY_TOKENS:
            text += CANARY
        return {"messages": ({"role": "user", "content": text},), "images": ()}

    def _eos_ids(self) -> set[int]:
        configured = self.model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        return {i for i in [*ids, self.tokenizer.eos_token_id] if i is not None}

    def template_shows_tools(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the chat template writes the schemas of tools into the prompt.

        Raises:
            ValueError: there is no chat template.
        """
        if self.processor.chat_template is None:
            raise ValueError(
                f"policy.path={self.path!r} has no chat template, so a conversation with tools has no form; set "
                "rollout.parser to a TagParser"
            )
        messages = [{"role": "user", "content": "?"}]
        return self._render(messages, tools, True) != self._render(messages, None, True)

    def template_shows_calls(self, calls: Sequence[Mapping[str, Any]]) -> bool:
        return self._chat_fields.reads("assistant", "tool_calls", calls)

    def turn_text(self, ids: Sequence[int]) -> str:
        """Decode a turn with its special tokens, without the end token: models mark tool calls with special tokens."""
        ids = ids[:-1] if len(ids) and ids[-1] in self._eos_ids() else ids
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode_tool_results(
        self,
        messages: Sequence[Mapping[str, Any]],
        results: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        last_id: int,
    ) -> list[int]:
        """Return the ids between an assistant's turn and its next one; see `format_tool_results`.

        Args:
            messages: the conversation, up to the assistant's turn with its calls.
            results: messages of role "tool".
            tools: schemas of the tools, where the chat template shows them.
            last_id: last id of the assistant's turn.
        """
        text = format_tool_results(
            lambda conversation, opened: self._render(list(conversation), tools, opened),
            messages,
            [{**m, "content": self.break_special_tokens(m["content"])} for m in results],
            [self.tokenizer.convert_ids_to_tokens(i) for i in sorted(self._eos_ids())],
            self.tokenizer.convert_ids_to_tokens(last_id),
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def break_special_tokens(self, text: str) -> str:
        """Return the text so that no part of it is tokenised as a special token, such as an image's."""
        return break_special_tokens(text, self.tokenizer.all_special_tokens)

    def encode_conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode a conversation as its chat template does, with the end token where the template writes none.

        A token that spans the end of the generation prompt and the beginning of a turn does not count as the
        assistant's, since the policy never samples such a token.
        """
        if self.processor.chat_template is None:
            raise ValueError(f"policy.path={self.path!r} has no chat template, so a conversation has no form")
        ends = [self.tokenizer.convert_ids_to_tokens(i) for i in sorted(self._eos_ids())]
        text, spans = assistant_spans(lambda part, opened: self.prompt_text(part, tools, opened), messages, ends)
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, places = encoding["input_ids"], encoding["offset_mapping"]
        mask = [any(start <= a and b <= end for start, end in spans) for a, b in places]
        last = next((i for i, mine in zip(reversed(ids), reversed(mask)) if mine), None)
        if last not in self._eos_ids():
            ids, mask = [*ids, self.tokenizer.eos_token_id], [*mask, True]
        return torch.tensor(ids, dtype=torch.long), torch.tensor(mask)

    @property
    def reserved_texts(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.tokenizer.convert_ids_to_tokens(self.forbidden))

    def write_turn(self, raw: Mapping[str, Any], message: str) -> str:
        """Write a demonstrated message as the chat template does behind the prompt, without the end token.

        A text stays as it is.

        Raises:
            ValueError: the template writes the prompt in another way once the message follows.
        """
        if not isinstance(message, AssistantMessage):
            return message
        tools = raw.get("tools")
        before = self.prompt_text(list(raw["messages"]), tools)
        text = self.prompt_text([*raw["messages"], dict(message.fields)], tools, opened=False)
        if not text.startswith(before):
            raise ValueError(
                f"policy.path={self.path}: the chat template writes the prompt in another way once the assistant's "
                "message follows, so the policy never answers after this text; use a template that keeps it"
            )
        turn = text[len(before) :]
        ends = [self.tokenizer.convert_ids_to_tokens(i) for i in sorted(self._eos_ids())]
        return turn[: min([len(turn), *(at for end in ends if (at := turn.find(end)) >= 0)])]

    def _chat_ids(self, messages: list[dict[str, Any]], tools: Any = None) -> list[int]:
        text = self.prompt_text(messages, tools)
        # a chat template writes its own special tokens
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def prompt_text(self, messages: list[dict[str, Any]], tools: Any = None, opened: bool = True) -> str:
        """Format messages as text.

        Args:
            messages: of the conversation.
            tools: schemas that the chat template shows to the model.
            opened: whether the assistant's next turn is opened.
        """
        if self.processor.chat_template is None:
            refuse_fields(messages, tools, f"policy.path={self.path}")
            return join_messages(messages, self.tokenizer, self.path)
        self._chat_fields.refuse_unread(messages, tools)
        return self._render(messages, tools, opened)

    @functools.cached_property
    def opened_tag(self) -> str:  # type: ignore[override]
        """A tag such as <think> with which the chat template ends every prompt, with the white space after it."""
        if self.processor.chat_template is None:
            return ""
        return find_opened_tag(lambda messages: self._render(messages, None, True), self.tokenizer.all_special_tokens)

    @functools.cached_property
    def _chat_fields(self) -> ChatFields:
        return ChatFields(self._render, f"policy.path={self.path}")

    def _render(self, messages: list[dict[str, Any]], tools: Any, opened: bool) -> str:
        options = {"tokenize": False, "add_generation_prompt": opened, **self.template_arguments}
        with chat_template_error(self.path):
            return self.processor.apply_chat_template(messages, tools=tools, **options)
