"""Prompts with videos of random frames, and checkpoints whose processors take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.types import Prompt, Video
from scripts.model_sweep.checkpoints import build_checkpoint
from tests.checkpoints import qwen2_5_vl, qwen3_vl

RATES = (2.0, 4.0, 1.5)
"""Frames per second of the videos, by turns."""
KINDS = ("qwen2_5_vl", "qwen3_vl", "llava_onevision", "internvl")


def make_video(seed: int, size: tuple[int, int] = (32, 48), frames: int = 4) -> Video:
    """Every other frame of a video of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (frames, *size, 3), dtype=np.uint8)
    return Video(pixels, RATES[seed % len(RATES)], tuple(range(1, 2 * frames, 2)), 2 * frames + 1)


def ask(index: int, text: str, *kinds: str, size: tuple[int, int] = (32, 48), frames: int = 4) -> Prompt:
    """A question after parts of these kinds, "image" and "video"."""
    rng = np.random.default_rng(index)
    images = tuple(rng.integers(0, 256, (*size, 3), dtype=np.uint8) for kind in kinds if kind == "image")
    videos = tuple(make_video(10 * index + i, size, frames) for i, kind in enumerate(kinds) if kind == "video")
    content = [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]
    return Prompt(f"videos/train/{index}", ({"role": "user", "content": content},), images, videos=videos)


def save_checkpoint(kind: str, folder: Path) -> str:
    """Save a tiny checkpoint of one of `KINDS`."""
    makers: dict[str, Any] = {"qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl}
    if kind in makers:
        makers[kind](folder)
    else:
        build_checkpoint(kind, "image", folder)
    return str(folder)
