"""Contact sheet of a dataset: camera images over time, instruction and outcome of some episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.media.palette import BACKGROUND, GREEN, GREY, MARGIN, RED, WHITE

_CELL = 112  # pixels a side
_LINE = 20


def write_contact_sheet(
    dataset: Dataset, path: Path, episodes: int = 6, frames: int = 8, failed: Sequence[int] = ()
) -> Path | None:
    """Write a PNG with images of evenly spaced episodes. Returns its path, None if the dataset has no camera.

    Args:
        dataset: the dataset; each camera has one row of images per episode.
        path: path of the PNG.
        episodes: number of episodes.
        frames: number of images of an episode, evenly spaced from its first to its last.
        failed: indices of episodes to include first, at most half of `episodes`.
    """
    cameras = [name for name, feature in dataset.features.items() if feature.camera]
    if not cameras:
        return None
    spaced = np.linspace(0, len(dataset) - 1, min(episodes, len(dataset))).round().astype(int).tolist()
    numbers = list(dict.fromkeys([*failed[: episodes // 2], *spaced]))[:episodes]
    high = _LINE + len(cameras) * (_CELL + MARGIN)
    sheet = Image.new("RGB", (MARGIN + frames * (_CELL + MARGIN), MARGIN + len(numbers) * (high + MARGIN)), BACKGROUND)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=13)
    for row, number in enumerate(sorted(numbers)):
        top, episode = MARGIN + row * (high + MARGIN), dataset.read(number)
        draw.text((MARGIN, top), _title(number, episode), WHITE, font)
        draw.text((sheet.width - MARGIN, top), *_outcome(episode), font, anchor="ra")
        for line, camera in enumerate(cameras):
            images = episode.observations[camera]
            for column, step in enumerate(np.linspace(0, len(episode) - 1, frames).round().astype(int)):
                frame = Image.fromarray(np.asarray(images[int(step)])[..., :3])
                place = (MARGIN + column * (_CELL + MARGIN), top + _LINE + line * (_CELL + MARGIN))
                sheet.paste(frame.resize((_CELL, _CELL), Image.Resampling.BICUBIC), place)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)
    return path


def _title(number: int, episode: OfflineEpisode) -> str:
    return f"{number}: {episode.instruction or '(no instruction)'}  ({len(episode)} control steps)"


def _outcome(episode: OfflineEpisode) -> tuple[str, tuple[int, int, int]]:
    if episode.success is None:
        return {"done": "ended", "time": "cut off"}.get(episode.ended, "recording stopped"), GREY
    return ("success", GREEN) if episode.success else ("failed", RED)
