"""Images of OpenVLA: resized and normalised for each image encoder, as its processor does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

STRATEGIES = ("resize-naive", "resize-crop", "letterbox")


@dataclass(frozen=True)
class ImageSettings:
    """Settings of preprocessor_config.json; each tuple has an entry for each image encoder.

    Args:
        sizes: (height, width) of the encoder's image.
        interpolations: "bicubic", "bilinear", ..., as PIL names them.
        means: of the three channels in [0, 1].
        stds: of the three channels.
        strategy: "resize-naive" changes the proportion, "resize-crop" cuts off what is too long, "letterbox" pads to a
            square with the mean colour of the first encoder and does as resize-crop.
        raw: all entries of the file.
    """

    sizes: tuple[tuple[int, int], ...]
    interpolations: tuple[str, ...]
    means: tuple[tuple[float, ...], ...]
    stds: tuple[tuple[float, ...], ...]
    strategy: str = "resize-naive"
    raw: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], place: str) -> ImageSettings:
        """Build from the content of the file; refuse an unknown strategy."""
        strategy = raw.get("image_resize_strategy", "letterbox")
        if strategy not in STRATEGIES:
            raise ValueError(f"{place}: image_resize_strategy is {strategy!r}; mmrl has {', '.join(STRATEGIES)}")
        sizes = tuple((int(size[-2]), int(size[-1])) for size in raw["input_sizes"])
        arguments = (tuple(raw["interpolations"]), *(tuple(map(tuple, raw[name])) for name in ("means", "stds")))
        return cls(sizes, *arguments, strategy, dict(raw))

    def pixels(self, images: Tensor) -> Tensor:
        """Convert uint8 images [M, H, W, 3] to pixels [M, 3 per encoder, h, w], on their device."""
        pictures = [Image.fromarray(image) for image in images.cpu().numpy()]
        fills = [tuple(int(value * 255) for value in mean) for mean in self.means[:1]]
        if self.strategy == "letterbox":
            pictures = [_pad_to_square(picture, fills[0]) for picture in pictures]
        parts = []
        for size, interpolation, mean, std in zip(self.sizes, self.interpolations, self.means, self.stds):
            array = np.stack([self._fit(picture, size, interpolation) for picture in pictures])
            scaled = torch.from_numpy(array).to(images.device).movedim(-1, 1).float() / 255
            centre, width = (scaled.new_tensor(value)[:, None, None] for value in (mean, std))
            parts.append((scaled - centre) / width)
        return torch.cat(parts, dim=1)

    def _fit(self, picture: Image.Image, size: tuple[int, int], interpolation: str) -> np.ndarray:
        """Resize an image to uint8 [h, w, 3]."""
        height, width = size
        method = Image.Resampling[interpolation.upper()]
        if self.strategy == "resize-naive":
            return np.asarray(picture.resize((width, height), method))
        short = min(picture.size)  # the shorter side becomes `width`, as torchvision resizes by one number
        whole = tuple(width if side == short else int(width * side / short) for side in picture.size)
        x, y = round((whole[0] - width) / 2), round((whole[1] - height) / 2)
        return np.asarray(picture.resize(whole, method).crop((x, y, x + width, y + height)))


def crop_centre(images: Tensor, area: float) -> Tensor:
    """Cut the centre out of uint8 images [M, H, W, 3] and enlarge it to their size; `area` is the fraction kept.

    Checkpoints that were fine-tuned on randomly cropped images are evaluated so, with 0.9; bilinear as in TensorFlow's
    crop_and_resize. Source: Kim et al., "OpenVLA-OFT", 2025, code of the evaluation, arXiv:2502.19645.
    """
    if area >= 1:
        return images
    side = math.sqrt(area)
    rows, columns = (torch.linspace(-side, side, count, device=images.device) for count in images.shape[1:3])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
    scaled = images.movedim(-1, 1).float() / 255
    cut = grid_sample(scaled, grid.expand(len(images), -1, -1, -1), mode="bilinear", align_corners=True)
    return (cut.clamp(0, 1) * 255.5).to(torch.uint8).movedim(1, -1)


def _pad_to_square(picture: Image.Image, fill: tuple[int, ...]) -> Image.Image:
    """Add borders of one colour on both sides of the shorter axis."""
    longest = max(picture.size)
    x, y = ((longest - side) // 2 for side in picture.size)
    whole = Image.new("RGB", (picture.width + 2 * x, picture.height + 2 * y), fill)
    whole.paste(picture, (x, y))
    return whole
