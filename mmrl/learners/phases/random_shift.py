"""Random shifts of images: data augmentation for critics (DrQ)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import Phase, UpdateContext


class RandomShift(Phase):
    """Random-shift augmentation of DrQ: shift each image by up to `pixels` in each direction, its edge repeated.

    Each row has a shift of its own. Source: Image Augmentation Is All You Need, 2020, section 3.1, arXiv:2004.13649.

    Args:
        pixels: largest shift.
        columns: columns that hold images [N, H, W, C].
    """

    def __init__(self, pixels: int = 4, columns: tuple[str, ...] = ("obs.image", "next.image")):
        self.pixels, self.columns = pixels, tuple(columns)

    def models(self) -> frozenset[str]:
        return frozenset()

    def reads(self) -> frozenset[str]:
        return frozenset(self.columns)

    def writes(self) -> frozenset[str]:
        return frozenset(self.columns)

    def check(self) -> None:
        super().check()
        if self.pixels < 1:
            raise ValueError(f"RandomShift.pixels must be at least 1, got {self.pixels}; leave the phase out for none")

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        moved = {}
        for name in self.columns:
            image = batch[name]
            level = torch.special.ndtr(ctx.normal(len(image), 2).double())  # uniform in (0, 1)
            moved[name] = crop_images(
                image, (level * (2 * self.pixels + 1)).long().clamp(max=2 * self.pixels), self.pixels
            )
        return batch.with_columns(**moved)


def crop_images(image: Tensor, start: Tensor, pixels: int) -> Tensor:
    """[N, H, W, C] crops of the padded images that start at `start` [N, 2] in 0 ... 2 * pixels."""
    _, height, width, _ = image.shape
    wide = pad(image.movedim(-1, 1).float(), (pixels,) * 4, mode="replicate").movedim(1, -1).to(image.dtype)
    row = start[:, :1] + torch.arange(height, device=image.device)
    column = start[:, 1:] + torch.arange(width, device=image.device)
    return wide[torch.arange(len(image), device=image.device)[:, None, None], row[:, :, None], column[:, None, :]]
