"""Small random models: real architectures with random weights and a character tokenizer.

They replace hub checkpoints on machines without a GPU or a network. Once saved, they are loaded by the same code.
"""

from __future__ import annotations

import string
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mmrl.policies.text.checks.configuration import KEY, build_config

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ image_token }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
"""Contents end to end; an image part becomes the image token."""


def character_tokenizer(image_token: str = "<image>", extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per printable ASCII character, padding on the left.

    Ids 0, 1, 2, 3 are pad, bos, eos, unknown. It is a byte-level BPE without merges, because transformers loads the
    saved vocabulary of some architectures with a byte-level tokenizer class of its own, which then tokenizes equally.
    """
    special = ["<pad>", "<bos>", "<eos>", "<unk>"]
    characters = [c for c in string.printable if c.isprintable()] + ["\n"]
    # vocabulary: four special tokens, then each character as byte-level BPE spells it
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = {
        token: i for i, token in enumerate([*special, *(spelled.pre_tokenize_str(c)[0][0] for c in characters)])
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = spelled
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=[image_token, *extra],
        padding_side="left",
        chat_template=CHAT_TEMPLATE.replace("image_token", f"'{image_token}'"),
    )
    return fast


def special_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """Return the special ids that a model's configuration must share with its tokenizer."""
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def _check_llava(config: dict[str, Any]) -> None:
    """Refuse a configuration without both parts or the sizes of images, and other names beside the parts."""
    for name, needed in (("text_config", ()), ("vision_config", ("image_size", "patch_size"))):
        part = config.get(name)
        if not isinstance(part, dict):
            raise ValueError(f"{KEY}.{name} must be a mapping of llava's settings, got {part!r}; give one")
        for each in needed:
            if not isinstance(part.get(each), int) or part[each] < 1:
                raise ValueError(
                    f"{KEY}.{name}.{each} must be a whole number of pixels, got {part.get(each)!r}; set it"
                )
    if further := sorted(config.keys() - {"text_config", "vision_config"}):
        raise ValueError(f"{KEY}: {further[0]!r} is not read; write text_config and vision_config alone")
    vision = config["vision_config"]
    if vision["image_size"] % vision["patch_size"]:
        raise ValueError(
            f"{KEY}.vision_config: image_size={vision['image_size']} is no multiple of patch_size="
            f"{vision['patch_size']}; change one"
        )


def llava_parts(config: dict[str, Any]) -> tuple[Any, Any]:
    """Build a LLaVA configuration and its processor from `text_config` and `vision_config` dictionaries."""
    from transformers import CLIPImageProcessor, LlavaProcessor

    tokenizer: Any = character_tokenizer()
    _check_llava(config)
    vision = dict(config["vision_config"])
    size, patch = vision["image_size"], vision["patch_size"]
    # one image is (image_size / patch_size)^2 image tokens, one per patch
    full = build_config(
        "llava",
        {name: config[name] for name in ("text_config", "vision_config")},
        text_config={**config["text_config"], **special_ids(tokenizer)},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(size // patch) ** 2,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=config["text_config"].get("tie_word_embeddings", True),
    )
    processor = LlavaProcessor(
        CLIPImageProcessor(
            size={"height": size, "width": size}, do_center_crop=False, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        tokenizer,
        patch_size=patch,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=tokenizer.chat_template,
    )
    return full, processor
