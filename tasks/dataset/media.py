"""Images and videos of a row: paths, bytes, and the {bytes, path} entries of Hugging Face's data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.types import Video
from mmrl.files.strict_json import kind, quote
from mmrl.media.reading import FrameSampling, VideoHeader, open_video, read_header, read_video, spread
from tasks.images import check_size, image_path, image_size, is_animation, load_image, verify_image


@dataclass(frozen=True)
class Media:
    """One image, or one video.

    Args:
        data: file or bytes of an image or a video; of a video also a list of images.
        place: file, row and column, for messages.
        frames: number of frames that are taken evenly from a video, with `fps` the most; 0 for an image.
        whole: whether a video stays one, with the times of its frames; False makes its frames images.
        fps: frames that are taken from each second of a video that stays one; None takes `frames` of any.
        rate: frames per second of a video that is a list of images.
    """

    data: Path | bytes | tuple[Path | bytes, ...]
    place: str
    frames: int = 0
    whole: bool = False
    fps: float | None = None
    rate: float | None = None

    @property
    def kind(self) -> str:
        """What the messages call it: "image" or "video"."""
        return "video" if self.frames else "image"

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The content parts that stand for it: one for each image that the policy sees, or one for the video."""
        return [{"type": "video"}] if self.whole else [{"type": "image"}] * (self.frames or 1)

    def load(self, max_pixels: int) -> list[np.ndarray]:
        """Load the images, uint8 [H, W, 3]; none of a video that stays one."""
        if self.whole:
            return []
        if not self.frames:
            assert not isinstance(self.data, tuple)
            return [load_image(self.data, self.place, max_pixels)]
        if isinstance(self.data, tuple):
            indices = spread(len(self.data), self.frames)
            return [load_image(self.data[frame], self.place, max_pixels) for frame in indices]
        return list(self._read(max_pixels).frames)

    def load_videos(self, max_pixels: int) -> list[Video]:
        """Load the video; none of an image, or of a video whose frames are images."""
        if not self.whole:
            return []
        if not isinstance(self.data, tuple):
            return [self._read(max_pixels)]
        indices = self._choose(len(self.data), self._rate)
        frames = [load_image(self.data[frame], self.place, max_pixels) for frame in indices]
        self._check_equal([frame.shape[:2] for frame in frames])
        return [Video(np.stack(frames), self._rate, tuple(indices), len(self.data))]

    def check(self, max_pixels: int) -> None:
        """Raise if an image cannot be decoded to its last pixel."""
        for image in self.data if isinstance(self.data, tuple) else (self.data,):
            if not self.frames or isinstance(self.data, tuple):
                verify_image(image, self.place)
        self.load(max_pixels), self.load_videos(max_pixels)

    def sizes(self) -> list[tuple[int, int]]:
        """Height and width of each image, as its header states them; none of a video that stays one."""
        if self.whole:
            return []
        if self.frames and not isinstance(self.data, tuple):
            with open_video(self.data, self.place) as path:
                header = read_header(path)
                return [(header.height, header.width)] * self.frames
        images = self.data if isinstance(self.data, tuple) else (self.data,)
        return [image_size(images[i], self.place) for i in spread(len(images), self.frames or 1)]

    def blank_videos(self) -> list[Video]:
        """The video with blank frames, as its header states their size and number."""
        if not self.whole:
            return []
        if isinstance(self.data, tuple):
            total, rate = len(self.data), self._rate
            sizes = [image_size(self.data[i], self.place) for i in self._choose(total, rate)]
            self._check_equal(sizes)
            size = sizes[0]
        else:
            with open_video(self.data, self.place) as path:
                header = read_header(path)
            size, total, rate = (header.height, header.width), header.total, header.fps
        indices = self._choose(total, rate)
        blank = np.broadcast_to(np.uint8(0), (len(indices), *size, 3))
        return [Video(blank, rate, tuple(indices), total)]

    @property
    def _rate(self) -> float:
        if self.rate is None:
            raise ValueError(
                f"{self.place} has a video that is a list of images, which states no frame rate; set task.frame_rate "
                "to its frames per second or to the column that holds them"
            )
        return self.rate

    def _choose(self, total: int, rate: float) -> list[int]:
        return FrameSampling(self.frames, self.fps).choose(total, rate)

    def _check_equal(self, sizes: list[tuple[int, ...]]) -> None:
        if len(set(sizes)) > 1:
            raise ValueError(
                f"{self.place} has a video whose frames have different sizes, {sizes[0]} and "
                f"{next(size for size in sizes if size != sizes[0])}; make them equal"
            )

    def _read(self, max_pixels: int) -> Video:
        """Decode the chosen frames of a video file by ffmpeg."""
        with open_video(self.data, self.place) as path:  # type: ignore[arg-type]

            def check(header: VideoHeader) -> None:
                check_size(header.width, header.height, self.place, f"the video {Path(path).name}", max_pixels)

            return read_video(path, FrameSampling(self.frames, self.fps), check)

    def identity(self) -> bytes:
        """Bytes that are equal for equal media: of the content, or of the resolved path."""
        parts = self.data if isinstance(self.data, tuple) else (self.data,)
        rate = [f"{self._rate:g} frames per second".encode()] if self.whole and isinstance(self.data, tuple) else []
        return b"|".join(
            [
                *(p if isinstance(p, bytes) else str(p.resolve()).encode(errors="surrogateescape") for p in parts),
                *rate,
            ]
        )


def load_media(media: Sequence[Media], max_pixels: int) -> dict[str, tuple[Any, ...]]:
    """Load the images and videos of a prompt, by the names of its fields."""
    images = tuple(image for each in media for image in each.load(max_pixels))
    return {"images": images, "videos": tuple(video for each in media for video in each.load_videos(max_pixels))}


def blank_media(media: Sequence[Media]) -> dict[str, tuple[Any, ...]]:
    """Build blank images and videos of the sizes that headers state."""
    images = tuple(np.broadcast_to(np.uint8(0), (*size, 3)) for each in media for size in each.sizes())
    return {"images": images, "videos": tuple(video for each in media for video in each.blank_videos())}


def read_images(value: Any, place: str, folder: Path) -> list[Media]:
    """Images of a cell: none, one, or a list of them."""
    cells = value if isinstance(value, list) else [] if value is None else [value]
    return [Media(_file(cell, place, folder), place) for cell in cells]


def read_videos(value: Any, place: str, folder: Path, **options: Any) -> list[Media]:
    """Videos of a cell: one file, a list of files, or the images of one video; a list of lists holds several.

    Args:
        value: of the cell.
        place: file, row and column, for messages.
        folder: where paths start.
        options: of each `Media`.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        return [Media(_file(value, place, folder), place, **options)]
    if value and all(isinstance(cell, list) and cell for cell in value):
        return [Media(tuple(_file(image, place, folder) for image in cell), place, **options) for cell in value]
    files = [_file(cell, place, folder) for cell in value]
    if files and all(_is_image(file) for file in files):
        return [Media(tuple(files), place, **options)]
    return [Media(file, place, **options) for file in files]


def _file(cell: Any, place: str, folder: Path) -> Path | bytes:
    if isinstance(cell, dict) and cell.keys() & {"bytes", "path"}:
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes) and cell:
        return cell
    if not isinstance(cell, str) or not cell.strip():
        what = quote(cell) if isinstance(cell, str | int | float | bool) else kind(cell)
        raise ValueError(f"{place} must be the path of an image file, its bytes, or {{bytes, path}}, got {what}")
    return image_path(folder, cell, place)


def _is_image(data: Path | bytes) -> bool:
    """Return whether a file can be a frame of a video; an animation cannot, of which one frame would be taken."""
    try:
        return not is_animation(data, "")
    except ValueError:
        return False


def digest(parts: list[bytes]) -> bytes:
    """Hash of several texts, 16 bytes; where one ends counts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()
