"""Inputs of pi0: tokens, pixels and units, as its own processor computes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PI0Processor

from mmrl.files.pretrained import load_pretrained
from mmrl.policies.processor import Processor
from mmrl.policies.vla.lerobot.statistics import read_scales
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.vla.scale import Scale


class Pi0Reading(PretrainedReading):
    """The tokenizer and image processor of a pi0 checkpoint, or of its PaliGemma."""

    def __init__(self, path: str, reader: str | None, cameras: Sequence[str]):
        self.processor: Any = load_pretrained(PI0Processor, reader or path)
        self.path = path
        self.cameras = len(cameras)
        self._ids: dict[str, Tensor] = {}

    @property
    def pad_id(self) -> int:
        return self.processor.tokenizer.pad_token_id or 0

    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L]: image placeholders, then the instruction."""
        if instruction not in self._ids:
            processor = self.processor
            images = processor.image_token * processor.image_seq_length * self.cameras
            text = f"{images}{processor.tokenizer.bos_token}{instruction}\n"
            self._ids[instruction] = torch.tensor(processor.tokenizer(text)["input_ids"])
        return self._ids[instruction]

    def pixels(self, images: Tensor) -> Tensor:
        flat = list(images.flatten(0, 1).movedim(-1, 1))
        pixels = self.processor.image_processor(flat, return_tensors="pt")["pixel_values"]
        return pixels.to(images.device).unflatten(0, images.shape[:2])

    def units(self) -> Processor | None:
        processor = self.processor
        state = _scale(processor.state_mean, processor.state_std)
        action = _scale(processor.actions_mean, processor.actions_std)
        if state.kind == action.kind == "identity":  # none of transformers; perhaps of lerobot
            scales = read_scales(self.path, {}, None, "MEAN_STD")
            state, action = scales["STATE"], scales["ACTION"]
        if state.kind == action.kind == "identity":
            return None
        return Processor(vectors={} if state.kind == "identity" else {"proprio": state}, action=action)

    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save the processor in transformers' format, with the statistics that the format supports."""
        state = units.vectors.get("proprio", Scale())
        for name, scale in (("state", state), ("actions", units.action)):
            plain = scale.kind == "mean_std" and all(scale.mask)
            setattr(self.processor, f"{name}_mean", list(scale.offset) if plain else None)
            setattr(self.processor, f"{name}_std", list(scale.width) if plain else None)
        self.processor.save_pretrained(folder)


def _scale(mean: list[float] | None, std: list[float] | None) -> Scale:
    return Scale() if mean is None or std is None else Scale("mean_std", tuple(mean), tuple(std))
