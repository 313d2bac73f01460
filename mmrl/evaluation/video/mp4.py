"""Encode an MP4 by an ffmpeg that may hang or die, within a time limit."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np

from mmrl.files.atomic import replace_path
from mmrl.media.ffmpeg import end_in_time, find_program

LIMIT_S = 120.0
"""Seconds that ffmpeg may take for one video."""
CONSTANT_RATE_FACTOR = "10"
"""Quality of H.264: 0 is lossless, 51 the worst."""


class VideoError(RuntimeError):
    """A video that ffmpeg did not write."""


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
    assert process.stdin is not None
    with end_in_time(process, limit_s) as is_late:
        with suppress(BrokenPipeError):  # it died; its status says so
            for frame in frames:
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    return is_late.is_set()
