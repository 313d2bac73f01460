"""Inputs of a VLA on a pretrained vision-language model: images, prompt and proprioception as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import pad_stack
from mmrl.core.types import Observation
from mmrl.policies.processor import read_image, read_proprio
from mmrl.policies.vla.pretrained.reading import PretrainedReading


def encode_inputs(
    raw: Mapping[str, Any], cameras: Sequence[str], proprio_dims: int, reading: PretrainedReading
) -> Observation:
    """Convert a processed raw observation to images [cameras, H, W, 3], ids [L] and proprioception [P].

    Args:
        raw: with an image uint8 [H, W, 3] of each camera, "proprio" [P] and "instruction".
        cameras: names of the images, in the order in which the model reads them.
        proprio_dims: P; 0 for models that read no proprioception, whose observations lack it.
        reading: of the checkpoint.
    """
    images = [read_image(name, raw[name]) for name in cameras]
    for name, image in zip(cameras, images):
        if image.shape != images[0].shape:
            raise ValueError(
                f"cameras {cameras[0]!r} and {name!r} have images of {tuple(images[0].shape)} and "
                f"{tuple(image.shape)}; give them one size with policy.processor.images"
            )
    proprio = read_proprio(raw["proprio"] if proprio_dims else (), proprio_dims)
    ids = reading.prompt_ids(str(raw["instruction"]), proprio.numpy())
    encoded = {"images": torch.stack(images), "input_ids": ids}
    return encoded | ({"proprio": proprio} if proprio_dims else {})


def collate_inputs(observations: Sequence[Observation], pad_id: int) -> dict[str, Tensor]:
    """Collate rows of `encode_inputs`; shorter prompts are padded at the end with `pad_id`."""
    ids = [torch.as_tensor(row["input_ids"]) for row in observations]
    stacked = [name for name in ("images", "proprio") if name in observations[0]]
    return {
        "input_ids": pad_stack(ids, pad_id),
        "attention_mask": pad_stack([torch.ones_like(row) for row in ids]),
        **{name: torch.stack([torch.as_tensor(row[name]) for row in observations]) for name in stacked},
    }
