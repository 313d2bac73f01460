"""Tile videos of episodes side by side, with instruction and outcome, and write them as MP4 or GIF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmrl.core.installation.optional_packages import import_optional
from mmrl.evaluation.video.mp4 import LIMIT_S, encode_mp4
from mmrl.files.atomic import replace_path
from mmrl.media.palette import BACKGROUND, GREEN, GREY, MARGIN, RED, WHITE

PACKAGES = ("imageio_ffmpeg",)
"""Optional packages that write an MP4."""
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class VideoPanel:
    """Frames of one episode, uint8 [H, W, 3] each, and their captions.

    Args:
        frames: at least one; all panels of a video have frames of one size.
        title: above the panel, for example "before".
        outcome: below the panel once it has ended, for example "reached".
        success: colours the outcome green or red; grey when unknown.
    """

    frames: Sequence[np.ndarray]
    title: str
    outcome: str = ""
    success: bool | None = None


def tile_panels(panels: Sequence[VideoPanel], instruction: str = "", height: int = 256) -> list[np.ndarray]:
    """Tile panels side by side into frames uint8 [H', W', 3] with even sides.

    Smaller frames are enlarged by a whole factor to about `height` pixels. A panel that ends early repeats its last
    frame.
    """
    shape = _common_shape(panels)
    factor = max(1, height // shape[0])
    size = max(12, min(shape[:2]) * factor // 14)
    font = ImageFont.load_default(size=size)
    rows = zip_longest(*(panel.frames for panel in panels))
    images = [panel.frames[-1] for panel in panels]
    tiles = []
    for time, frames in enumerate(rows):
        images = [last if frame is None else frame for last, frame in zip(images, frames)]
        ended = [time >= len(panel.frames) - 1 for panel in panels]
        tiles.append(_compose(panels, images, ended, instruction, factor, font))
    return tiles


def write_video(frames: Sequence[np.ndarray], path: str | Path, fps: float = 20.0, limit_s: float = LIMIT_S) -> Path:
    """Write frames uint8 [H, W, 3] as MP4 (H.264, plays in browsers) or as an endless GIF, by the file's suffix.

    Raises:
        VideoError: ffmpeg fails or takes too long.
    """
    path = Path(path)
    if not frames:
        raise ValueError(f"no frames to write to {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".mp4":
        if frames[0].shape[0] % 2 or frames[0].shape[1] % 2:
            raise ValueError(f"{path}: H.264 needs even sides, the frames are {frames[0].shape[:2]}")
        encode_mp4(frames, path, fps, limit_s)
    elif path.suffix == ".gif":
        imageio = import_optional("imageio.v2", f"{path.name}, an animated image,")
        with replace_path(path) as file:
            imageio.mimsave(file, list(frames), duration=1000 / fps, loop=0)
    else:
        raise ValueError(f"videos are written as .mp4 or .gif, not {path.suffix!r}: {path}")
    return path


def _common_shape(panels: Sequence[VideoPanel]) -> tuple[int, int, int]:
    if not panels:
        raise ValueError("no panels to tile")
    for panel in panels:
        if len(panel.frames) == 0:
            raise ValueError(f"panel {panel.title!r} has no frames")
    described = {(frame.shape, str(frame.dtype)) for panel in panels for frame in panel.frames}
    (shape, dtype), *others = described
    if others or dtype != "uint8" or len(shape) != 3 or shape[2] != 3:
        raise ValueError(f"all frames must be uint8 [H, W, 3] of one size, got {sorted(described)}")
    return shape


def _compose(
    panels: Sequence[VideoPanel],
    frames: Sequence[np.ndarray],
    ended: Sequence[bool],
    instruction: str,
    factor: int,
    font: Font,
) -> np.ndarray:
    """Compose one frame: instruction, titles, images, outcomes, from top to bottom."""
    # pixels: size of one enlarged image, height of a text line, and the whole canvas with even sides
    high, wide = (side * factor for side in frames[0].shape[:2])
    line = int(1.4 * font.getbbox("Ag")[3])
    top = (line if instruction else 0) + line
    width = MARGIN + len(panels) * (wide + MARGIN)
    canvas = Image.new("RGB", (_even(width), _even(top + high + line)), BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    if instruction:
        draw.text((width // 2, line // 2), _fit(instruction, width, font), WHITE, font, anchor="mm")
    for position, (panel, frame) in enumerate(zip(panels, frames)):
        # one column per panel: title above, image, and the outcome below once its episode has ended
        x = MARGIN + position * (wide + MARGIN)
        middle = x + wide // 2
        canvas.paste(Image.fromarray(frame).resize((wide, high), Image.Resampling.NEAREST), (x, top))
        draw.text((middle, top - line // 2), _fit(panel.title, wide, font), GREY, font, anchor="mm")
        if ended[position]:
            colour = GREY if panel.success is None else GREEN if panel.success else RED
            draw.text((middle, top + high + line // 2), _fit(panel.outcome, wide, font), colour, font, anchor="mm")
    return np.asarray(canvas)


def _fit(text: str, width: int, font: Font) -> str:
    """Truncate a text with an ellipsis to `width` pixels."""
    if font.getlength(text) <= width - 2 * MARGIN:
        return text
    while text and font.getlength(text + "…") > width - 2 * MARGIN:
        text = text[:-1]
    return text + "…"


def _even(side: int) -> int:
    return side + side % 2
