"""Inputs of SmolVLA: tokens, pixels and units, as lerobot's processor computes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers import AutoConfig, AutoTokenizer

from mmrl.files.pretrained import load_pretrained
from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import refuse_empty
from mmrl.policies.vla.lerobot.files import WEIGHTS, find_file, write_features
from mmrl.policies.vla.lerobot.statistics import read_scales, write_scales
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.vla.scale import Scale
from mmrl.policies.vla.smolvla.settings import input_steps, read_settings, vlm_source


class SmolVLAReading(PretrainedReading):
    """The tokenizer of the vision-language model, lerobot's image transform, and the checkpoint's statistics."""

    def __init__(self, path: str, reader: str | None, cameras: Sequence[str]):
        self.path, self.settings, self.cameras = path, read_settings(path), tuple(cameras)
        source = vlm_source(path, reader, self.settings)
        self.vlm_config: Any = load_pretrained(AutoConfig, source)
        self.tokenizer: Any = refuse_empty(load_pretrained(AutoTokenizer, source))
        self._ids: dict[str, Tensor] = {}

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L] of the instruction and a line break, at most `tokenizer_max_length` of them."""
        if instruction not in self._ids:
            text = instruction if instruction.endswith("\n") else f"{instruction}\n"
            encoding = self.tokenizer(text, truncation=True, max_length=self.settings.tokenizer_max_length)
            self._ids[instruction] = torch.tensor(encoding["input_ids"])
        return self._ids[instruction]

    def pixels(self, images: Tensor) -> Tensor:
        """Resize uint8 images [N, cameras, H, W, 3] in proportion, pad left and above with -1, scale to [-1, 1]."""
        flat = images.flatten(0, 1).movedim(-1, 1).float() / 255
        if self.settings.resize_imgs_with_padding is not None:
            flat = resize_with_padding(flat, *self.settings.resize_imgs_with_padding)
        return (flat * 2 - 1).unflatten(0, images.shape[:2])

    def units(self) -> Processor | None:
        scales = read_scales(self.path, self.settings.raw, find_file(self.path, WEIGHTS), "MEAN_STD")
        if all(scale.kind == "identity" for scale in scales.values()):
            return None
        state = scales["STATE"]
        return Processor(vectors={} if state.kind == "identity" else {"proprio": state}, action=scales["ACTION"])

    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save lerobot's processors with the units; tokenizer and configuration of the language model under vlm/."""
        size = self.settings.resize_imgs_with_padding or (512, 512)
        write_features(folder, size, self.cameras, proprio_dims, action_dims)
        write_scales(
            folder, input_steps(self.settings), {"STATE": units.vectors.get("proprio", Scale()), "ACTION": units.action}
        )
        self.vlm_config.save_pretrained(folder / "vlm")
        self.tokenizer.save_pretrained(folder / "vlm")


def resize_with_padding(images: Tensor, width: int, height: int) -> Tensor:
    """Resize images [M, 3, H, W] to fit, in proportion, and fill left and above with zeros: [M, 3, height, width]."""
    ratio = max(images.shape[3] / width, images.shape[2] / height)
    size = int(images.shape[2] / ratio), int(images.shape[3] / ratio)
    fitted = interpolate(images, size=size, mode="bilinear", align_corners=False)
    return pad(fitted, (width - size[1], 0, height - size[0], 0))
