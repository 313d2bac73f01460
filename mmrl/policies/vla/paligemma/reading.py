"""Inputs of the pi models in lerobot's format: prompt, pixels and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers import AutoTokenizer

from mmrl.files.pretrained import load_pretrained
from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import refuse_empty
from mmrl.policies.vla.lerobot.files import read_config, write_features
from mmrl.policies.vla.lerobot.statistics import (
    DEVICE,
    NORMALIZER,
    ProcessorStep,
    read_scales,
    read_steps,
    write_scales,
)
from mmrl.policies.vla.paligemma.prompt import write_prompt
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.vla.scale import Scale

_TOKENIZER = "tokenizer"  # folder of a checkpoint
_PALIGEMMA = "google/paligemma-3b-pt-224"


class PaliGemmaReading(PretrainedReading):
    """The tokenizer of PaliGemma, lerobot's prompt and image transform, and the checkpoint's statistics.

    Subclasses name the type in config.json, the normalisation, the end of the prompt and the step that writes it.
    """

    kind: ClassVar[str]
    mode: ClassVar[str]
    prompt_end: ClassVar[str]
    prompt_step: ClassVar[str]

    def __init__(self, path: str, reader: str | None, cameras: Sequence[str]):
        self.path, self.cameras = path, tuple(cameras)
        self.config = read_config(path, self.kind)
        steps = {step.get("registry_name"): step for step in read_steps(path)}
        self.tokenizer_name, self.tokenizer = self._read_tokenizer(reader, steps.get("tokenizer_processor", {}))

    def _read_tokenizer(self, reader: str | None, step: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the name of the checkpoint's tokenizer, and `reader`'s, its own or the named tokenizer."""
        artifact, name = step.get("artifacts", {}).get("tokenizer_name"), _PALIGEMMA
        if artifact is None:
            name = step.get("config", {}).get("tokenizer_name") or _PALIGEMMA
        arguments: dict[str, Any] = {"pretrained_model_name_or_path": reader or name}
        if reader is None and artifact is not None:
            arguments = {"pretrained_model_name_or_path": self.path, "subfolder": artifact}
        return name, refuse_empty(load_pretrained(AutoTokenizer, **arguments))

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the images for the network."""
        height, width = self.config.get("image_resolution") or (224, 224)
        return int(height), int(width)

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L] of the prompt with the state, at most `tokenizer_max_length` of them."""
        text = write_prompt(instruction, proprio, self.prompt_end)
        limit = int(self.config.get("tokenizer_max_length", 200))
        return torch.tensor(self.tokenizer(text, truncation=True, max_length=limit)["input_ids"])

    def pixels(self, images: Tensor) -> Tensor:
        """Resize uint8 images [N, cameras, H, W, 3] in proportion, pad with black on both sides, scale to [-1, 1]."""
        flat = resize_centred(images.flatten(0, 1).movedim(-1, 1).float() / 255, *self.image_size)
        return (flat * 2 - 1).unflatten(0, images.shape[:2])

    def units(self) -> Processor | None:
        scales = read_scales(self.path, self.config, None, self.mode)
        if all(scale.kind == "identity" for scale in scales.values()):
            return None
        state = scales["STATE"]
        return Processor(vectors={} if state.kind == "identity" else {"proprio": state}, action=scales["ACTION"])

    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save lerobot's processors with the units, and the tokenizer."""
        write_features(folder, self.image_size[::-1], self.cameras, proprio_dims, action_dims)
        scales = {"STATE": units.vectors.get("proprio", Scale()), "ACTION": units.action}
        write_scales(folder, self.input_steps(), scales)
        self.tokenizer.save_pretrained(folder / _TOKENIZER)

    def input_steps(self) -> list[ProcessorStep]:
        """Return the steps of lerobot's preprocessor."""
        tokenizer = {
            "max_length": int(self.config.get("tokenizer_max_length", 200)),
            "task_key": "task",
            "padding_side": "right",
            "padding": "max_length",
            "truncation": True,
            "tokenizer_name": self.tokenizer_name,
        }
        return [
            ProcessorStep("rename_observations_processor", {"rename_map": {}}),
            ProcessorStep("to_batch_processor"),
            ProcessorStep(NORMALIZER),
            ProcessorStep(self.prompt_step),
            ProcessorStep("tokenizer_processor", tokenizer, {"tokenizer_name": _TOKENIZER}),
            ProcessorStep(DEVICE, {"device": self.config.get("device") or "cpu", "float_dtype": None}),
        ]


def resize_centred(images: Tensor, height: int, width: int) -> Tensor:
    """Resize images [M, 3, H, W] to fit, in proportion, and fill both sides with zeros: [M, 3, height, width]."""
    if images.shape[2:] == (height, width):
        return images
    ratio = max(images.shape[3] / width, images.shape[2] / height)
    size = int(images.shape[2] / ratio), int(images.shape[3] / ratio)
    fitted = interpolate(images, size=size, mode="bilinear", align_corners=False).clamp(0, 1)
    pad_top, pad_left = (height - size[0]) // 2, (width - size[1]) // 2
    return pad(fitted, (pad_left, width - size[1] - pad_left, pad_top, height - size[0] - pad_top))
