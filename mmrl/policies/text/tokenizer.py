"""Pad token and chat format of checkpoints that lack them, and the ids that stand for other inputs than text."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedConfig

log = logging.getLogger(__name__)

MODALITIES = r"image|images|img|slice|video|vision|visual|frame|audio|boi|eoi|bov|eov|boa|eoa"
ID_NAME = re.compile(rf"(?:\w+_)?(?:{MODALITIES})_(?:\w+_)?(?:ids?|index|indices|idx)|im_(?:start|end|newline)_id")
"""Names of special ids: image_token_id, video_token_index, visual_indicator_token_ids, im_start_id."""
PLACEHOLDERS = ("image_token_id", "video_token_id", "audio_token_id")
"""Attributes of a processor: the ids that its model replaces by features."""


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


def multimodal_ids(config: Any, processor: Any = None) -> list[int]:
    """Collect the special ids of images, videos and sounds from a transformers configuration and all that it nests.

    They are sorted, and all inside the vocabulary; an id that also ends a text is none of them.

    Args:
        config: of the transformers model.
        processor: its tokenizer or processor; a few models have the id of their image token there alone.
    """
    text = config.get_text_config(decoder=True)
    ends = {i for part in (text, config) for i in _integers(getattr(part, "eos_token_id", None))}
    placeholders = {i for name in PLACEHOLDERS for i in _integers(getattr(processor, name, None))}
    return sorted(i for i in {*_special_ids(config), *placeholders} - ends if 0 <= i < text.vocab_size)


def _special_ids(config: PreTrainedConfig) -> Iterator[int]:
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            yield from _special_ids(value)
        elif ID_NAME.fullmatch(name):
            yield from _integers(value)


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _integers(item)
