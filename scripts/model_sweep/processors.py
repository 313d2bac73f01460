"""Tiny processors of vision-language types: the parts that a type's processor class asks for, at small sizes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

from mmrl.policies.text.tiny import CHAT_TEMPLATE, character_tokenizer, special_ids
from scripts.model_sweep.configs import IMAGE_SIZE, PATCH, tiny_config
from scripts.model_sweep.letters import Letters
from scripts.model_sweep.overrides import (
    CONFIG_TOKENS,
    FEATURE_TOKENS,
    FURTHER_TOKENS,
    IMAGE_PROCESSORS,
    IMAGE_TOKENS,
    PROCESSORS,
    TEMPLATES,
    VIDEO_PROCESSORS,
    VIDEO_TEMPLATES,
)

TOKEN = re.compile(r"""["'](<[^<>"'\s{}]{1,40}>|\[[A-Z_]{2,20}\])["']""")
"""Special tokens in the source of a processor."""
ATTRIBUTE = re.compile(r"tokenizer\.(\w+_token)\b|tokenizer\.(\w+_token)_id\b|tokenizer, .(\w+_token)(?:_id)?\b")
"""Special tokens that a processor looks for in its tokenizer."""
CLASSES = {
    "cosmos3_omni": "Qwen3VLProcessor",
    "fast_vlm": "LlavaProcessor",
    "glm_ocr": "Glm46VProcessor",
    "glmga": "Glm46VProcessor",
    "kosmos-2": "Kosmos2Processor",
    "kosmos-2.5": "Kosmos2_5Processor",
    "mistral4": "PixtralProcessor",
    "qwen2_5_omni_thinker": "Qwen2_5OmniProcessor",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeProcessor",
}
"""Processors of types for which transformers names none."""
IMAGE_CLASSES = {
    "glm4v_moe": "Glm4vImageProcessor",
    "glm_ocr": "Glm46VImageProcessor",
    "qwen3_vl_moe": "Qwen2VLImageProcessor",
}
"""Image processors of types for which transformers names none."""
SQUARE = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
AREA = {"shortest_edge": IMAGE_SIZE * IMAGE_SIZE // 2, "longest_edge": 2 * IMAGE_SIZE * IMAGE_SIZE}
SIDES = {"shortest_edge": IMAGE_SIZE, "longest_edge": IMAGE_SIZE}
FEATURES = re.compile(r"tokens:? \d+, features:? (\d+)")
COUNTS = ("image_seq_length", "image_seq_len", "num_image_tokens")
MERGED = (IMAGE_SIZE // PATCH) ** 2


def build_processor(kind: str) -> tuple[Any, Any]:
    """Build the tiny configuration and the processor of a vision-language type.

    Raises:
        Exception: of any kind, where a type's classes do not fit together at these sizes.
    """
    name = CLASSES.get(kind) or PROCESSOR_MAPPING_NAMES.get(kind)
    if name is None:
        raise ValueError("transformers names no processor for it")
    cls = getattr(transformers, name)
    source = inspect.getsource(inspect.getmodule(cls))  # type: ignore[arg-type]
    constants = [getattr(cls, each) for each in dir(cls) if each.endswith("_TOKEN")]
    tokens = dict.fromkeys([*(each for each in constants if isinstance(each, str)), *TOKEN.findall(source)])
    tokens |= dict.fromkeys(FURTHER_TOKENS.get(kind, []))
    image_token = IMAGE_TOKENS.get(kind) or next((t for t in tokens if "image" in t.lower()), "<image>")
    attributes = {name for found in ATTRIBUTE.findall(source) for name in found if name}
    tokenizer = build_tokenizer(image_token, [t for t in tokens if t != image_token], attributes)
    processor = cls(**collect_arguments(cls, name, kind, tokenizer, image_token))
    image_token = str(getattr(processor, "image_token", None) or image_token)
    written = "".join(getattr(processor, part, part) for part in TEMPLATES.get(kind, [image_token]))
    tokenizer.chat_template = CHAT_TEMPLATE.replace("image_token", repr(written))
    if isinstance(getattr(processor, "video_token", None), str):
        video = "".join(getattr(processor, part, part) for part in VIDEO_TEMPLATES.get(kind, ["video_token"]))
        branch = f"{{% elif part['type'] == 'video' %}}{{{{ {video!r} }}}}{{% else %}}{{{{ part['text']"
        tokenizer.chat_template = tokenizer.chat_template.replace("{% else %}{{ part['text']", branch)
    if "chat_template" in inspect.signature(cls.__init__).parameters:
        processor.chat_template = tokenizer.chat_template
    config = tiny_config(kind, special_ids(processor.tokenizer))
    _set_ids(config, processor, FEATURE_TOKENS.get(kind, image_token))
    for name, special in CONFIG_TOKENS.get(kind, {}).items():
        ids = processor.tokenizer.convert_tokens_to_ids(special)
        setattr(config, name, dict(zip(special, ids)) if name.endswith("_map") else ids)
    return config, processor


def build_tokenizer(image_token: str, others: list[str], attributes: set[str]) -> Any:
    """Build the character tokenizer with the special tokens that a processor names or looks for."""
    others = [t for t in dict.fromkeys([*others, *(f"<{word}>" for word in FURTHER)]) if t not in TEXT_TOKENS]
    named = {f"{part}_token": token for part, token in name_tokens(image_token, others).items()}
    wanted = sorted(attributes - named.keys() - set(ORDINARY))
    named |= {name: next((t for t in others if name[:-6] in t), f"<{name[:-6]}>") for name in wanted}
    tokenizer: Any = character_tokenizer(image_token, tuple(dict.fromkeys([*others, *named.values()])))
    tokenizer.init_kwargs.update(named)
    tokenizer._set_model_specific_special_tokens(named)
    return tokenizer


ORDINARY = ("pad_token", "bos_token", "eos_token", "unk_token", "add_bos_token", "add_eos_token")
FURTHER = ("video", "audio", "start", "end")
"""Special tokens that every tiny tokenizer has beside the image's."""
TEXT_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")


def name_tokens(image_token: str, others: list[str]) -> dict[str, str]:
    """Names under which processors look for special tokens in a tokenizer."""

    def find(*parts: str) -> str:
        fallback = next((f"<{word}>" for word in FURTHER if word in parts), f"<{'_'.join(parts)}>")
        return next((t for t in others if all(p in t.lower() for p in parts)), fallback)

    return {
        "image": image_token,
        "video": find("video"),
        "audio": find("audio"),
        "boi": find("start", "image"),
        "eoi": find("end", "image"),
        "boa": find("audio"),
        "eoa": find("audio"),
        "image_start": find("start"),
        "image_end": find("end"),
        "start_image": find("start"),
        "end_image": find("end"),
        "context_image": image_token,
        "fake_image": find("fake"),
        "vision_start": find("vision_start"),
        "vision_end": find("vision_end"),
    }


def collect_arguments(cls: Any, name: str, kind: str, tokenizer: Any, image_token: str) -> dict[str, Any]:
    """Arguments of a processor: its parts, and the numbers of tokens of an image."""
    names = set(inspect.signature(cls.__init__).parameters)
    same = [kind, *(other for other, processor in PROCESSOR_MAPPING_NAMES.items() if processor == name)]
    parts: dict[str, Any] = {each: tokenizer for each in names if each.endswith("tokenizer")}
    if "image_processor" in names:
        parts["image_processor"] = build_image_processor(kind, same)
    if "video_processor" in names:
        video = find_name(VIDEO_PROCESSOR_MAPPING_NAMES, same) or "Qwen2VLVideoProcessor"
        video = video if isinstance(video, str) else next(iter(video.values()))
        parts["video_processor"] = build_sized(getattr(transformers, video), VIDEO_PROCESSORS.get(kind))
    if "feature_extractor" in names:
        sounds = find_name(FEATURE_EXTRACTOR_MAPPING_NAMES, same) or "WhisperFeatureExtractor"
        parts["feature_extractor"] = getattr(transformers, sounds)()
    numbers = {
        "patch_size": PATCH,
        "vision_feature_select_strategy": "full",
        "image_seq_length": MERGED,
        "image_seq_len": MERGED,
        "num_image_tokens": MERGED,
        "image_token": image_token,
        "chat_template": tokenizer.chat_template,
    }
    own = {name: value for name, value in numbers.items() if name in names}
    return parts | own | PROCESSORS.get(kind, {})


def find_name(names: Any, kinds: list[str]) -> Any:
    """Name of a class for the first of several types that a table of transformers has."""
    return next((names[kind] for kind in kinds if names.get(kind)), None)


def build_image_processor(kind: str, same: list[str]) -> Any:
    """Build the small image processor of a type, or that of a type with the same processor."""
    names = find_name(IMAGE_PROCESSOR_MAPPING_NAMES, same) or {
        "torchvision": IMAGE_CLASSES.get(kind, "CLIPImageProcessor")
    }
    for name in (names.get("torchvision"), names.get("pil")):
        if name is not None:
            return build_sized(getattr(transformers, name), IMAGE_PROCESSORS.get(kind, {}))
    raise ValueError("transformers names no image processor for it")


def build_sized(cls: Any, overrides: dict[str, Any] | None = None) -> Any:
    """Build an image or video processor whose sizes are those of the tiny vision encoders."""
    default = cls()
    sizes: dict[str, Any] = {}
    for name in ("size", "crop_size", "pad_size", "max_image_size"):
        value = getattr(default, name, None)
        if value is None or isinstance(value, int):
            continue
        value = {key: number for key, number in dict(value).items() if number is not None}
        keys = set(value)
        if {"height", "width"} <= keys:
            sizes[name] = SQUARE
        elif "shortest_edge" in keys and "longest_edge" in keys:
            sizes[name] = AREA if value["longest_edge"] > 10_000 else SIDES
        elif "shortest_edge" in keys or "longest_edge" in keys:
            sizes[name] = dict.fromkeys((k for k in ("shortest_edge", "longest_edge") if k in keys), IMAGE_SIZE)
    for name, value in (
        ("patch_size", PATCH),
        ("min_pixels", AREA["shortest_edge"]),
        ("max_pixels", AREA["longest_edge"]),
    ):
        if isinstance(getattr(default, name, None), int):
            sizes[name] = value
    if isinstance(getattr(default, "image_grid_pinpoints", None), list):
        sizes["image_grid_pinpoints"] = [[IMAGE_SIZE, 2 * IMAGE_SIZE], [2 * IMAGE_SIZE, IMAGE_SIZE]]
    return cls(**(sizes | (overrides or {})))


def _set_ids(config: Any, processor: Any, image_token: str) -> None:
    """Give the ids of special tokens in a configuration those of the processor's tokenizer."""
    tokenizer = processor.tokenizer
    image = tokenizer.convert_tokens_to_ids(image_token)
    spare = sorted({i for i in tokenizer.all_special_ids if i > 3} - {image}, reverse=True)
    for part in list_configs(config):
        for name, value in list(vars(part).items()):
            if not re.fullmatch(r".*(token_id|token_ids|token_index|_start_id|_end_id|_newline_id|_patch_id)", name):
                continue
            if name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id") or name.startswith(
                "_"
            ):
                continue
            own = getattr(processor, name.replace("video_token_index", "video_token_id"), None)
            if isinstance(value, list | tuple):
                setattr(part, name, [own] if isinstance(own, int) else spare[: len(value)])
            elif name in ("image_token_id", "image_token_index", "image_patch_id"):
                setattr(part, name, image)
            else:
                setattr(part, name, own if isinstance(own, int) and own >= 0 else spare[len(name) % max(len(spare), 1)])


def list_configs(config: Any) -> list[Any]:
    inner = [value for value in vars(config).values() if isinstance(value, transformers.PreTrainedConfig)]
    return [config, *(part for each in inner for part in list_configs(each))]


@torch.no_grad()
def run_with_picture(model: Any, processor: Any) -> None:
    """Run transformers alone on a prompt with a picture."""
    prompt = Letters(images=1)[0]
    text = processor.apply_chat_template(list(prompt.messages), tokenize=False, add_generation_prompt=True)
    inputs = processor(
        text=[text], images=[Image.fromarray(prompt.images[0])], return_tensors="pt", add_special_tokens=False
    )
    if hasattr(model.model if hasattr(model, "model") else model, "get_rope_index"):
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == processor.image_token_id).long()
    model(**inputs.to(model.dtype))


def fit_image_tokens(model: Any, processor: Any, folder: Path) -> None:
    """Set the number of tokens of a picture to that of the features that the model says it has."""
    try:
        if processor.chat_template is not None:
            run_with_picture(model, processor)
    except Exception as error:
        if (found := FEATURES.search(str(error))) is None:
            return
        for name in COUNTS:
            if isinstance(getattr(processor, name, None), int):
                setattr(processor, name, int(found[1]))
        processor.save_pretrained(folder)
