"""Write frames to a video file, and decode frames by their times."""

from __future__ import annotations

import time
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.installation.optional_packages import MissingPackageError, format_missing
from mmrl.media.videos import check_video

try:
    import av
except ImportError:  # optional: needed for datasets with videos
    av = None  # type: ignore[assignment]


def need_av() -> Any:
    """Return PyAV; raises ModuleNotFoundError with the command that installs it."""
    if av is None:
        text = format_missing("a video of a dataset", "av")
        raise MissingPackageError(f"{text}, or record with video=false", name="av")
    return av


_REMEDY = "copy it again from its source"
LIMIT_S = 600.0
"""Seconds in which the frames of an episode have to be decoded."""


class VideoWriter:
    """Writer of an H.264 file to which episodes are appended; frame k has time k / fps.

    Args:
        path: path of the .mp4 file.
        fps: frames per second.
        shape: (H, W, 3) of every frame; with two even sides colours have half the resolution (yuv420p).
        crf: constant rate factor of the codec: smaller values give better quality and larger files; with 0 only the
            conversion of colours loses information.
    """

    def __init__(self, path: Path, fps: float, shape: tuple[int, ...], crf: int = 18):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.frames = path, 0
        self.file = need_av().open(str(path), "w")
        rate = Fraction(fps).limit_denominator(1001)
        # a key frame every second frame, for cheap random access
        self.stream = self.file.add_stream("libx264", rate=rate, options={"crf": str(crf), "g": "2", "bf": "0"})
        self.stream.height, self.stream.width = shape[:2]
        self.stream.pix_fmt = "yuv420p" if shape[0] % 2 == 0 and shape[1] % 2 == 0 else "yuv444p"
        self.stream.codec_context.time_base = 1 / rate

    def add(self, images: Iterable[np.ndarray]) -> int:
        """Append frames uint8 [H, W, 3]; returns the number of the first."""
        first = self.frames
        for image in images:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts = self.frames
            self.file.mux(self.stream.encode(frame))
            self.frames += 1
        return first

    def close(self) -> None:
        self.file.mux(self.stream.encode())
        self.file.close()


def duration_frames(path: Path) -> int:
    """Number of frames that the file's header states."""
    check_video(path, _REMEDY)
    try:
        with need_av().open(str(path), timeout=LIMIT_S) as file:
            return file.streams.video[0].frames
    except (av.error.FFmpegError, IndexError, ValueError) as error:
        raise ValueError(f"{path}: not a readable video ({error}); {_REMEDY}") from error


def decode(path: Path, start_s: float, count: int, fps: float, shape: tuple[int, ...]) -> np.ndarray:
    """Decode the `count` frames at times start_s + k / fps, uint8 [count, H, W, 3]; raises if one is missing."""
    out = np.empty((count, *shape), np.uint8)
    deadline = time.monotonic() + LIMIT_S
    present = np.zeros(count, bool)
    check_video(path, _REMEDY)
    try:
        with need_av().open(str(path), timeout=LIMIT_S) as file:
            stream = file.streams.video[0]
            if (stream.height, stream.width) != shape[:2]:  # before decoding, which could take any memory
                raise ValueError(f"{path}: frames are {stream.height} x {stream.width}, the features say {shape}")
            file.seek(max(0, int(start_s / stream.time_base)), stream=stream)
            for frame in file.decode(stream):
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"{path}: decoding {count} frames from {start_s:.3f} s on takes over {LIMIT_S:g} s; {_REMEDY}"
                    )
                position = (float(frame.pts * stream.time_base) - start_s) * fps
                step = round(position)
                if step >= count:
                    break
                if step < 0:
                    continue
                if abs(position - step) > 0.25:
                    raise ValueError(
                        f"{path}: a frame at {float(frame.pts * stream.time_base):.4f} s lies between two control "
                        f"steps at {fps} per second; fps in meta/info.json is wrong, or the video was cut"
                    )
                image = frame.to_ndarray(format="rgb24")
                if image.shape != shape:
                    raise ValueError(f"{path}: frames are {image.shape}, the features say {shape}")
                out[step], present[step] = image, True
    except (av.error.FFmpegError, IndexError) as error:
        raise ValueError(f"{path}: not a readable video ({error}); {_REMEDY}") from error
    if not present.all():
        raise ValueError(
            f"{path}: the video is too short: {present.sum()} of {count} frames from {start_s:.3f} s on are there; "
            "copy it again from its source, or leave the episode out"
        )
    return out
