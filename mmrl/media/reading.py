"""Read chosen frames of a video of others, with its frame rate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.installation.optional_packages import import_optional
from mmrl.core.types import Video
from mmrl.media.ffmpeg import check_program, count_frames, read_frames
from mmrl.media.videos import check_video


@dataclass(frozen=True)
class FrameSampling:
    """Which frames of a video are read.

    Args:
        frames: number of frames, evenly spaced from the first to the last; frames of a shorter video repeat. With
            `fps` the most.
        fps: frames for each second of the video; None reads `frames` of a video of any length.
    """

    frames: int = 8
    fps: float | None = None

    def __post_init__(self) -> None:
        check_at_least(1, "videos:", frames=self.frames)
        if self.fps is not None:
            check_positive("videos:", fps=self.fps)

    def choose(self, total: int, rate: float) -> list[int]:
        """Choose among the frames 0 ... total - 1 of a video with `rate` frames per second."""
        if self.fps is None:
            return spread(total, self.frames)
        return spread(total, min(max(int(total / rate * self.fps), 1), self.frames, total))


@dataclass(frozen=True)
class VideoHeader:
    """What the header of a video states; the number of frames is an estimate from rate and duration."""

    width: int
    height: int
    fps: float
    total: int


def spread(length: int, count: int) -> list[int]:
    """Evenly spaced positions from the first to the last; positions repeat where there are fewer than `count`."""
    return np.linspace(0, length - 1, count).round().astype(int).tolist()


def read_header(path: str) -> VideoHeader:
    """Read size, frame rate and duration.

    Raises:
        RuntimeError: ffmpeg cannot read the file, or it states no frame rate.
    """
    iio = import_optional("imageio.v3", "reading a video")

    stated = iio.immeta(path, plugin="FFMPEG")
    (width, height), fps = stated["size"], float(stated["fps"])
    if not 0 < fps < float("inf"):
        raise RuntimeError(f"its frame rate is {fps}")
    duration = float(stated.get("duration") or 0.0)
    return VideoHeader(width, height, fps, max(round(duration * fps), 1))


def read_video(path: str, sampling: FrameSampling, check: Callable[[VideoHeader], None] | None = None) -> Video:
    """Read the chosen frames of a video, and their places among all frames.

    Args:
        path: of a video inside of `open_video`.
        sampling: which frames.
        check: of the header, before a frame is decoded; None for no check.

    Raises:
        RuntimeError: no frame can be decoded, or ffmpeg takes too long.
    """
    header = read_header(path)
    if check is not None:
        check(header)
    total = count_frames(path)
    indices = sampling.choose(total, header.fps)
    frames = _take(read_frames(path, header.width, header.height), max(indices))
    by_index = {i: frame for i, frame in enumerate(frames) if i in indices}
    if not by_index:
        raise RuntimeError("it has no frame that can be decoded")
    last = max(by_index)  # the count of a file may be larger than what can be decoded
    chosen = np.stack([by_index.get(i, by_index[last]) for i in indices])
    return Video(chosen, header.fps, tuple(indices), total)


@contextmanager
def open_video(data: Path | bytes, place: str) -> Iterator[str]:
    """Path of a video, for bytes of a temporary copy; errors of ffmpeg name the place.

    Raises:
        ConfigError: there is no ffmpeg.
        ValueError: for what is raised inside of the block by a file that is no video, or a broken one.
    """
    check_program()
    with tempfile.NamedTemporaryFile(suffix=".mp4") as copy:  # imageio looks at the ending, ffmpeg does not
        path = str(data)
        if isinstance(data, bytes):
            copy.write(data)
            copy.flush()
            path = copy.name
        try:
            check_video(path, "write a video file")
            yield path
        except (OSError, RuntimeError, KeyError, IndexError) as error:
            reason = " ".join(str(error).split())[-200:]
            raise ValueError(f"{place}: {Path(path).name} cannot be read as a video ({reason}); replace it") from error


def _take(frames: Iterator[np.ndarray], last: int) -> Iterator[np.ndarray]:
    for _, frame in zip(range(last + 1), frames):
        yield frame
