"""Count and decode the frames of a video of others by ffmpeg, within a time limit."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import import_optional

LIMIT_S = 600.0
"""Seconds that ffmpeg may take for one file."""
_FRAMES = re.compile(rb"frame=\s*(\d+)")


def count_frames(path: str, limit_s: float = LIMIT_S) -> int:
    """Count the frames of the first video stream by decoding it.

    Args:
        path: of a file that `mmrl.media.videos.check_video` lets pass.
        limit_s: seconds of real time.

    Raises:
        RuntimeError: ffmpeg fails, or takes longer.
    """
    command = [find_program(), "-nostdin", "-i", path, "-map", "0:v:0", "-vf", "null", "-f", "null", "-"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(_explain_limit(limit_s)) from error
    counts = _FRAMES.findall(ended.stderr)
    if ended.returncode or not counts:
        raise RuntimeError(ended.stderr.decode(errors="replace"))
    return int(counts[-1])


def read_frames(path: str, width: int, height: int, limit_s: float = LIMIT_S) -> Iterator[np.ndarray]:
    """Decode the frames in their order, uint8 [H, W, 3], until the file or the caller ends.

    Args:
        path: of a file that `mmrl.media.videos.check_video` lets pass.
        width: of a decoded frame, in pixels.
        height: of it.
        limit_s: seconds of real time for all frames.

    Raises:
        RuntimeError: the last frame is not whole, or ffmpeg takes longer.
    """
    command = [find_program(), "-nostdin", "-i", path, "-pix_fmt", "rgb24", "-vcodec", "rawvideo", "-f", "image2pipe"]
    process = subprocess.Popen([*command, "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    size = width * height * 3
    with end_in_time(process, limit_s) as is_late:
        try:
            while data := process.stdout.read(size):
                if is_late.is_set():
                    break
                if len(data) < size:
                    raise RuntimeError("the file ends within a frame")
                yield np.frombuffer(data, np.uint8).reshape(height, width, 3).copy()
            if is_late.is_set():
                raise RuntimeError(_explain_limit(limit_s))
        finally:
            process.kill()
            process.stdout.close()


@contextmanager
def end_in_time(process: subprocess.Popen[bytes], limit_s: float) -> Iterator[threading.Event]:
    """Kill a process after some seconds, and at the end of the context; yields an event that is set at the limit."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def check_program() -> None:
    """Refuse to read videos where there is no ffmpeg.

    Raises:
        ConfigError: with what to install.
    """
    find_program()


def find_program() -> str:
    """Return the path of ffmpeg.

    Raises:
        ConfigError: there is none, with what to install.
    """
    try:
        return import_optional("imageio_ffmpeg", "a video").get_ffmpeg_exe()
    except RuntimeError as error:  # the package is there without the program
        raise ConfigError(
            f"a video needs ffmpeg, and there is none ({error}): pip install imageio-ffmpeg, or name the "
            "program in the environment variable IMAGEIO_FFMPEG_EXE"
        ) from error


def _explain_limit(limit_s: float) -> str:
    return f"ffmpeg took longer than {limit_s:g} s"
