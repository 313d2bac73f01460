"""TensorBoard."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from mmrl.core.installation.optional_packages import import_optional, require_packages
from mmrl.loggers.base import COLUMNS, sample_rows
from mmrl.samples.view import escape_controls

MAX_CHARACTERS = 1000  # of a cell


class TensorBoard(TensorBoardLogger):
    """Log to <save_dir>/tensorboard.

    Args:
        save_dir: folder of the run.
    """

    packages = ("tensorboard",)

    def __init__(self, save_dir: str):
        require_packages(self.packages, "logger=tensorboard")
        super().__init__(save_dir, name="", version="tensorboard", default_hp_metric=False)

    @rank_zero_only
    def log_samples(self, groups: Sequence[Mapping[str, Any]], step: int) -> None:
        """Log a table of text with a row for every completion."""
        lines = [COLUMNS, ["---"] * len(COLUMNS), *sample_rows(groups)]
        text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
        self.experiment.add_text("samples", text, step)

    @rank_zero_only
    def log_video(self, name: str, file: Path, step: int) -> None:
        """Log an MP4 file as an animated image, the form of videos in TensorBoard."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        imageio = import_optional("imageio.v3", "a video in TensorBoard")
        frames = imageio.imread(file, plugin="FFMPEG")
        fps = imageio.immeta(file, plugin="FFMPEG").get("fps", 10)
        gif = io.BytesIO()
        imageio.imwrite(gif, frames, extension=".gif", duration=1000 / fps, loop=0)
        height, width = frames.shape[1:3]
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif.getvalue())
        writer = self.experiment._get_file_writer()
        writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)


def _cell(value: Any) -> str:
    """Format a value for a cell of Markdown; HTML in it stays text."""
    text = escape_controls(str("" if value is None else value))[:MAX_CHARACTERS].replace("\n", " ")
    for character in "&<>|`":
        text = text.replace(character, f"&#{ord(character)};")
    return text
