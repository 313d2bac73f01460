"""Write the videos of a run, which goes on where one of them cannot be written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.evaluation.video.encoder import write_video
from mmrl.evaluation.video.mp4 import LIMIT_S, VideoError

MOST_FAILURES = 3
"""Failures in a row after which no further video is tried, since each may take the whole limit."""
log = logging.getLogger(__name__)


class CountingVideoWriter:
    """Writes videos, and counts those that ffmpeg does not write in place of raising an error.

    Args:
        limit_s: seconds for one video.
    """

    def __init__(self, limit_s: float = LIMIT_S):
        self.limit_s = limit_s
        self.count = self.failed = self._in_a_row = 0

    def write(self, frames: Sequence[np.ndarray], path: Path, fps: float = 20.0) -> Path | None:
        """Write frames uint8 [H, W, 3] as MP4. Returns the path, or None where it could not be written.

        The first failure is a warning with the cause, and the last one that is tried says so.
        """
        self.count += 1
        if self._in_a_row >= MOST_FAILURES:
            self.failed += 1
            return None
        try:
            write_video(frames, path, fps, self.limit_s)
        except (VideoError, ConfigError) as error:  # ConfigError: there is no ffmpeg
            self.failed, self._in_a_row = self.failed + 1, self._in_a_row + 1
            if self.failed == 1:
                log.warning("%s is not written, and the run goes on: %s", path.name, error)
            if self._in_a_row == MOST_FAILURES:
                log.warning("no further video is tried after %d failures in a row", MOST_FAILURES)
            return None
        self._in_a_row = 0
        return path

    def warn_failures(self) -> None:
        """Warn at the end of what writes videos, with the number of those that are missing."""
        if self.failed > 1:
            log.warning("%d of %d videos are not written", self.failed, self.count)
