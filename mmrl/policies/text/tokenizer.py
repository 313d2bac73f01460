"""Add a pad token and a chat format to checkpoints that lack them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)


def set_pad_token(tokenizer: Any, path: str) -> None:
    """Pad with the end-of-sequence token where the tokenizer has no pad token, as those of Llama and GPT-2 do not.

    Padding is masked, so its id changes no number.

    Raises:
        ValueError: there is no end-of-sequence token either.
    """
    if tokenizer.pad_token_id is not None:
        return
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"policy.path={path!r}: its tokenizer has no end-of-sequence token, so no completion could end; "
            "name one as eos_token in its tokenizer_config.json"
        )
    tokenizer.pad_token = tokenizer.eos_token


def join_messages(messages: Sequence[Mapping[str, Any]], tokenizer: Any, path: str | None) -> str:
    """Format messages for checkpoints without a chat template: BOS, then the text of the only message of the user.

    Other conversations are written as "Role: text" lines, "System: ...", "User: ...", and end with "Assistant:" unless
    the assistant's turn is the last one, so that no role is lost. Base models such as Llama and Gemma were trained
    with a BOS token before every text.
    """
    for message in messages:
        if not isinstance(message["content"], str):
            raise ValueError(
                f"policy.path={path!r}: its processor has no chat template, which says where images stand in the text; "
                "choose an instruction-tuned checkpoint, or put a chat_template.jinja into its folder"
            )
    bos = tokenizer.bos_token or ""
    _warn_once(path, bos)
    if [message["role"] for message in messages] == ["user"]:
        text = messages[0]["content"]
    else:
        lines = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
        text = "\n".join(lines if messages[-1]["role"] == "assistant" else [*lines, "Assistant:"])
    return text if text.startswith(bos) else bos + text


def encode_answer(output: str, tokenizer: Any, forbidden: Sequence[int]) -> list[int]:
    """Encode a demonstrated answer with its end token. Raises ValueError for ids that the policy never samples."""
    ids = tokenizer.encode(output, add_special_tokens=False)
    if never := sorted(set(ids) & set(forbidden)):
        raise ValueError(
            f"the demonstration {output[:80]!r} holds {tokenizer.convert_ids_to_tokens(never)}, which this policy "
            "never writes: they stand for its inputs; take them out of the answer"
        )
    return [*ids, tokenizer.eos_token_id]


@functools.cache
def _warn_once(path: str | None, bos: str) -> None:
    log.warning(
        "policy.path=%s has no chat template: a single message of the user is the prompt %s, other conversations are "
        "written as lines 'Role: text'; instruction-tuned checkpoints bring a template",
        path,
        f"after {bos!r}" if bos else "without a token before them, since its tokenizer names no BOS",
    )
