"""Sizes of the feature maps of a ResNet."""

from __future__ import annotations


def feature_size(image_size: tuple[int, int], halvings: int = 5) -> tuple[int, int]:
    """Return height and width of a ResNet's last feature map: so many times half the size, rounded up."""
    height, width = image_size
    for _ in range(halvings):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width
