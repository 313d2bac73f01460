"""Ids in the vocabulary of a multimodal model that stand for its other inputs: images, videos and sounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedConfig

MODALITIES = r"image|images|img|slice|video|vision|visual|frame|audio|boi|eoi|bov|eov|boa|eoa"
NAME = re.compile(rf"(?:\w+_)?(?:{MODALITIES})_(?:\w+_)?(?:ids?|index|indices|idx)|im_(?:start|end|newline)_id")
"""Names of special ids: image_token_id, video_token_index, visual_indicator_token_ids, im_start_id."""
PLACEHOLDERS = ("image_token_id", "video_token_id", "audio_token_id")
"""Attributes of a processor: the ids that its model replaces by features."""


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
        elif NAME.fullmatch(name):
            yield from _integers(value)


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _integers(item)
