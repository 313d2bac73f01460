"""Policies of vision-language models: a text policy whose prompt may have images and videos."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText, AutoProcessor

from mmrl.core.batch import Ragged, pad_stack
from mmrl.core.types import AssistantMessage, Observation
from mmrl.files.pretrained import load_pretrained
from mmrl.policies.base import Policy, require_inputs
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.chat_template import check_chat_template
from mmrl.policies.text.loading import refuse_empty
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import llava_parts
from mmrl.policies.text.videos import build_video_probes, refuse_videos, video_options

PER_TOKEN = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids"})
"""Processor outputs that run along the tokens; every other one stays ragged."""
VIDEOS = "pixel_values_videos"
UNUSED = frozenset({"attention_mask", "labels", "video_metadata"})
"""Processor outputs that no model gets: the mask is that of the batch, labels make a model compute a loss, and times of
frames are in the text or in inputs of their own."""


class VisionLanguagePolicy(TextPolicy):
    """Any image-text-to-text model of transformers with its processor. See TextPolicy for the arguments.

    With `config` instead of `path` it is a LLaVA with random weights: `text_config` and `vision_config`.

    Args:
        freeze_vision: the image encoder is not trained; the projector after it is.
    """

    auto_model: Any = AutoModelForImageTextToText
    per_token = PER_TOKEN
    divides_sequences = False  # images are placed by the tokens of whole sequences
    refuse_division = classmethod(Policy.refuse_division.__func__)  # type: ignore[attr-defined]

    @classmethod
    def packages_of(cls, init_args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the package of published processors, whose pixels differ without it; none for random weights."""
        return ("torchvision",) if init_args.get("path") else ()

    def __init__(self, freeze_vision: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        if freeze_vision:
            self.model.get_encoder(modality="image").requires_grad_(False)

    def load_processor(self, path: str) -> Any:
        processor = load_pretrained(AutoProcessor, **locate_checkpoint(path))
        if not hasattr(processor, "image_processor"):
            raise ValueError(
                f"its processor is a {type(processor).__name__}, which takes no images; use a text policy for it"
            )
        if processor.chat_template is None:
            raise ValueError(
                "its processor has no chat template, which says where images stand in the text; choose an "
                "instruction-tuned checkpoint of a type whose processor takes one, such as qwen2_vl, idefics3 or llava"
            )
        check_chat_template(processor)
        refuse_empty(processor.tokenizer).padding_side = "left"
        return processor

    def random_parts(self, config: dict[str, Any]) -> tuple[Any, Any]:
        kind = config.pop("model_type", "llava")
        if kind != "llava":
            raise ValueError(
                f"policy.config: only llava can be built from a configuration alone, got {kind!r}; give a path"
            )
        return llava_parts(config)

    def optional_modules(self) -> list[nn.Module]:
        return [self.model.get_encoder(modality="image")]

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages", "images"], self)
        messages, images, videos = list(raw["messages"]), raw["images"], raw.get("videos") or ()
        _refuse_parts(messages, {"image": len(images), "video": len(videos)})
        messages = _expand_content(messages)
        options = {"return_mm_token_type_ids": True} if self.wants_token_types else {}
        options |= video_options(videos)
        text, pictures = self.prompt_text(messages, raw.get("tools")), [Image.fromarray(image) for image in images]
        if videos:
            refuse_videos(text, len(videos), self.processor, self.path, self.video_refusal)
        media = f"{len(pictures)} image(s)" + (f" and {len(videos)} video(s)" if videos else "")
        try:
            features = self.processor(
                text=[text], images=pictures or None, return_tensors="pt", add_special_tokens=False, **options
            )
        except (TypeError, ValueError, KeyError) as error:  # processors differ in what they demand
            raise ValueError(
                f"policy.path={self.path!r}: its processor cannot encode a prompt with {media}: "
                f"{' '.join(str(error).split())[:200]}; change the prompt, or choose another checkpoint"
            ) from error
        if "input_ids" not in features or ((pictures or videos) and not features.keys() - PER_TOKEN - UNUSED):
            lack = "no input_ids" if "input_ids" not in features else f"nothing of {media}"
            raise ValueError(
                f"policy.path={self.path!r}: its processor ({type(self.processor).__name__}) gives {lack}, but only "
                f"{', '.join(features) or 'an empty result'}; choose another checkpoint"
            )
        inputs = {name: self._convert_input(name, value) for name, value in features.items() if name not in UNUSED}
        return {name: value[0] if name in PER_TOKEN else value for name, value in inputs.items()}

    def check_batch(self, observations: Sequence[Observation]) -> None:
        _refuse_other_frames([row[VIDEOS] for row in observations if VIDEOS in row])

    def try_processor(self) -> None:
        name = type(self.processor).__name__
        try:
            ids = self.encode(self.canary())["input_ids"]
        except ValueError:
            raise
        except Exception as error:  # the code of a processor may raise anything
            raise ValueError(
                f"policy.path={self.path!r}: its processor ({name}) cannot encode a prompt with an image: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}; choose another checkpoint"
            ) from error
        if ids.ndim != 1 or not len(ids) or ids.is_floating_point():
            raise ValueError(
                f"policy.path={self.path!r}: its processor ({name}) gives input_ids of shape {list(ids.shape)} "
                f"and type {ids.dtype} for one prompt, not a row of ids; choose another checkpoint"
            )

    def _convert_input(self, name: str, value: Any) -> Tensor:
        """Convert what a processor leaves as lists, and pixels in bf16 or fp16, as those of llama4, for the model."""
        try:
            tensor = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"policy.path={self.path!r}: its processor gives {name!r} as {type(value).__name__}, not as numbers of "
                "equal shape; choose another checkpoint"
            ) from error
        return tensor.to(self.model.dtype) if tensor.dtype in (torch.bfloat16, torch.float16) else tensor

    def extend(self, observation: Observation, ids: Tensor) -> Observation:
        along = {k: v for k, v in observation.items() if k in PER_TOKEN}  # later tokens are text: type 0
        return super().extend(observation, ids) | {
            k: torch.cat([v, v.new_zeros(len(ids))]) for k, v in along.items() if k != "input_ids"
        }

    def engine_prompt(self, raw: Mapping[str, Any]) -> tuple[list[int], list[np.ndarray]]:
        return self._chat_ids(_expand_content(raw["messages"]), raw.get("tools")), list(raw["images"])

    def write_turn(self, raw: Mapping[str, Any], message: str) -> str:
        if not isinstance(message, AssistantMessage):
            return message
        (fields,) = _expand_content([dict(message.fields)])
        return super().write_turn(
            {**raw, "messages": _expand_content(raw["messages"])}, AssistantMessage(message, fields)
        )

    def canary(self) -> Mapping[str, Any]:
        """Return the text canary with an image: two ramps and their product."""
        ramp = np.linspace(0, 255, 48)
        across, down = np.meshgrid(ramp, ramp)
        image = np.stack([across, down, across * down / 255], axis=-1).astype(np.uint8)
        (message,) = super().canary()["messages"]
        content = [{"type": "image"}, {"type": "text", "text": message["content"]}]
        return {"messages": ({"role": "user", "content": content},), "images": (image,)}

    def video_probes(self) -> list[dict[str, Any]]:
        if getattr(self.processor, "video_processor", None) is None:
            return []
        return build_video_probes(self.canary())

    @property
    def wants_token_types(self) -> bool:
        """Whether the model computes positions from the types of tokens: text, image or video."""
        return hasattr(self._inner, "get_rope_index")

    @property
    def _inner(self) -> Any:
        """The outermost part of the model with the rules of its positions, whose configuration names images."""
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return model if hasattr(model, "get_rope_index") else getattr(model, "model", model)

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        out: dict[str, Tensor | Ragged] = dict(super().collate(observations))
        names = {name for row in observations for name in row} - {"input_ids"}
        for name in sorted(names):
            rows = [row[name] for row in observations if name in row]
            out[name] = (
                pad_stack(rows, left=True) if name in PER_TOKEN else _build_ragged(name, observations, rows[0][:0])
            )
        return out

    def extra_inputs(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the pixels of all images end to end, and per-token inputs unchanged."""
        out: dict[str, Tensor] = {}
        for name, column in observation.items():
            if name in ("input_ids", "attention_mask"):
                continue
            out[name] = column.values if isinstance(column, Ragged) else column
        return out

    def positions(self, ids: Tensor, attention: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """Compute positions [N, L], or [3, N, L] (time, height, width) for three-dimensional rotary positions.

        They are always passed, since such models otherwise reuse the offsets of their last call.
        """
        if not self.wants_token_types:
            return super().positions(ids, attention, inputs)
        rule = self._inner.get_rope_index
        read = inspect.signature(rule).parameters
        sizes = {name: value for name, value in inputs.items() if name in read and name != "input_ids"}
        positions, _ = rule(ids, attention_mask=attention, **sizes)
        return positions


def _build_ragged(name: str, observations: Sequence[Observation], nothing: Tensor) -> Ragged:
    """Build one ragged input of all rows; completions of a prompt share a tensor, which is stored once."""
    parts = [row.get(name, nothing) for row in observations]
    if name == VIDEOS:
        _refuse_other_frames(parts)
    distinct = {id(part): part for part in parts}
    number = {key: i for i, key in enumerate(distinct)}
    sizes = torch.tensor([len(part) for part in distinct.values()])
    return Ragged(
        torch.cat(_pad_images(list(distinct.values()))), sizes, torch.tensor([number[id(part)] for part in parts])
    )


def _refuse_other_frames(parts: Sequence[Tensor]) -> None:
    if len({part.shape[1:] for part in parts if len(part)}) > 1:
        raise ValueError(
            "videos of different numbers of frames cannot stand in one batch of this model, which counts padding as "
            "frames; show every video with the same number: set task.frames, and leave task.fps out"
        )


def _pad_images(parts: list[Tensor]) -> list[Tensor]:
    """Pad images of different sizes [n, ...] with zeros at their ends, as processors pad the images of a batch."""
    if len({part.shape[1:] for part in parts if len(part)}) < 2:
        return [part for part in parts if len(part)] or parts[:1]
    sizes = [max(size) for size in zip(*(part.shape[1:] for part in parts if len(part)), strict=True)]
    padded = []
    for part in parts:
        if len(part):
            ends = [(0, size - have) for size, have in zip(sizes, part.shape[1:])]
            padded.append(torch.nn.functional.pad(part, [each for end in reversed(ends) for each in end]))
    return padded


def _refuse_parts(messages: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
    """Refuse messages with more or fewer parts of images and videos than the prompt brings."""
    parts = [part.get("type") for m in messages if not isinstance(m["content"], str) for part in m["content"]]
    for name, count in counts.items():
        if parts.count(name) != count:
            raise ValueError(
                f"the prompt's messages have {parts.count(name)} {name} part(s) but the prompt brings {count} {name}(s)"
            )


def _expand_content(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert a string to one text part, because templates of processors differ in what they accept."""
    return [
        {**m, "content": [{"type": "text", "text": m["content"]}]} if isinstance(m["content"], str) else m
        for m in messages
    ]
