"""Write videos by an ffmpeg that may hang or die: within a time limit, and without an end of the run."""

from __future__ import annotations

import logging
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.files.atomic import replace_path
from mmrl.media.ffmpeg import find_program

LIMIT_S = 120.0
"""Seconds that ffmpeg may take for one video."""
CONSTANT_RATE_FACTOR = "10"
"""Quality of H.264: 0 is lossless, 51 the worst."""
MOST_FAILURES = 3
"""Failures in a row after which no further video is tried, since each may take the whole limit."""
log = logging.getLogger(__name__)


class VideoError(RuntimeError):
    """A video that ffmpeg did not write."""


class VideoWriter:
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
            encode_mp4(frames, path, fps, self.limit_s)
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


def encode_mp4(frames: Sequence[np.ndarray], path: Path, fps: float, limit_s: float = LIMIT_S) -> None:
    """Encode frames uint8 [H, W, 3] with even sides as H.264, which plays in browsers.

    Args:
        frames: at least one.
        path: replaced as a whole.
        fps: frames for each second.
        limit_s: seconds of real time, and of processor time.

    Raises:
        VideoError: ffmpeg fails, dies or takes longer; what it wrote is removed.
        ConfigError: there is no ffmpeg.
    """
    height, width = frames[0].shape[:2]
    source = ["-f", "rawvideo", "-vcodec", "rawvideo", "-s", f"{width}x{height}", "-pix_fmt", "rgb24"]
    source += ["-r", str(Fraction(fps).limit_denominator()), "-timelimit", f"{limit_s:.0f}", "-i", "-", "-an"]
    target = ["-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", CONSTANT_RATE_FACTOR, "-v", "warning"]
    program = find_program()
    with replace_path(path) as file, tempfile.TemporaryFile() as errors:
        command = [program, "-y", *source, *target, str(file)]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        except OSError as error:
            raise VideoError(f"{program} does not start: {error}") from error
        late = _feed(process, frames, limit_s)
        if late:
            raise VideoError(f"ffmpeg took longer than {limit_s:g} s, and was ended")
        if process.returncode or not Path(file).exists():
            errors.seek(0)
            text = " ".join(errors.read(2000).decode(errors="replace").split())
            raise VideoError(f"ffmpeg ended with status {process.returncode}: {text or 'no message'}")


def _feed(process: subprocess.Popen[bytes], frames: Sequence[np.ndarray], limit_s: float) -> bool:
    """Hand frames to ffmpeg and wait for its end. Returns whether it was killed at the limit."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):  # it died; its status says so
            for frame in frames:
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    finally:
        timer.cancel()
        process.kill()  # after an interrupt of this process
        process.wait()
    return is_late.is_set()
