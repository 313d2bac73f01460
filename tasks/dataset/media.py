"""Images and videos of a row: paths, bytes, and the {bytes, path} entries of Hugging Face's data sets."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.files.strict_json import kind, quote
from mmrl.media.ffmpeg import count_frames, read_frames
from mmrl.media.videos import check_video
from tasks.images import check_size, image_path, image_size, is_animation, load_image, verify_image


@dataclass(frozen=True)
class Media:
    """One image, or the frames of one video.

    Args:
        data: file or bytes of an image or a video; of a video also a list of images.
        place: file, row and column, for messages.
        frames: number of frames that are taken evenly from a video; 0 for an image.
    """

    data: Path | bytes | tuple[Path | bytes, ...]
    place: str
    frames: int = 0

    @property
    def count(self) -> int:
        """Number of images that the policy sees."""
        return self.frames or 1

    def load(self, max_pixels: int) -> list[np.ndarray]:
        """Load the images, uint8 [H, W, 3]."""
        if not self.frames:
            assert not isinstance(self.data, tuple)
            return [load_image(self.data, self.place, max_pixels)]
        if isinstance(self.data, tuple):
            indices = _spread(len(self.data), self.frames)
            return [load_image(self.data[frame], self.place, max_pixels) for frame in indices]
        return _video_frames(self.data, self.place, self.frames, max_pixels)

    def check(self, max_pixels: int) -> None:
        """Raise if an image cannot be decoded to its last pixel."""
        for image in self.data if isinstance(self.data, tuple) else (self.data,):
            if not self.frames or isinstance(self.data, tuple):
                verify_image(image, self.place)
        self.load(max_pixels)

    def sizes(self) -> list[tuple[int, int]]:
        """Height and width of each image, as its header states them."""
        if self.frames and not isinstance(self.data, tuple):
            with _video_path(self.data, self.place) as path:
                return [_video_size(path)[::-1]] * self.frames
        images = self.data if isinstance(self.data, tuple) else (self.data,)
        return [image_size(images[i], self.place) for i in _spread(len(images), self.count)]

    def identity(self) -> bytes:
        """Bytes that are equal for equal media: of the content, or of the resolved path."""
        parts = self.data if isinstance(self.data, tuple) else (self.data,)
        return b"|".join(
            part if isinstance(part, bytes) else str(part.resolve()).encode(errors="surrogateescape") for part in parts
        )


def read_images(value: Any, place: str, folder: Path) -> list[Media]:
    """Images of a cell: none, one, or a list of them."""
    cells = value if isinstance(value, list) else [] if value is None else [value]
    return [Media(_file(cell, place, folder), place) for cell in cells]


def read_videos(value: Any, place: str, folder: Path, frames: int) -> list[Media]:
    """Videos of a cell: one file, a list of files, or the images of one video; a list of lists holds several."""
    if value is None:
        return []
    if not isinstance(value, list):
        return [Media(_file(value, place, folder), place, frames)]
    if value and all(isinstance(cell, list) and cell for cell in value):
        return [Media(tuple(_file(image, place, folder) for image in cell), place, frames) for cell in value]
    files = [_file(cell, place, folder) for cell in value]
    if files and all(_is_image(file) for file in files):
        return [Media(tuple(files), place, frames)]
    return [Media(file, place, frames) for file in files]


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


def _spread(length: int, count: int) -> list[int]:
    """Evenly spaced positions from the first to the last; positions repeat where there are fewer than `count`."""
    return np.linspace(0, length - 1, count).round().astype(int).tolist()


def _video_frames(data: Path | bytes, place: str, count: int, max_pixels: int) -> list[np.ndarray]:
    """Decode evenly spaced frames of a video file by ffmpeg."""
    with _video_path(data, place) as path:
        width, height = _video_size(path)
        check_size(width, height, place, f"the video {Path(path).name}", max_pixels)
        indices = _spread(count_frames(path), count)
        frames = _until(read_frames(path, width, height), max(indices))
        by_index = {i: frame for i, frame in enumerate(frames) if i in indices}
        if not by_index:
            raise RuntimeError("it has no frame that can be decoded")
        last = max(by_index)  # the count of a file may be larger than what can be decoded
        return [np.ascontiguousarray(by_index.get(i, by_index[last])) for i in indices]


def _video_size(path: str) -> tuple[int, int]:
    import imageio.v3 as iio

    width, height = iio.immeta(path, plugin="FFMPEG")["size"]
    return width, height


@contextmanager
def _video_path(data: Path | bytes, place: str) -> Iterator[str]:
    """Path of a video, for bytes of a temporary copy; errors of ffmpeg name the place."""
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


def _until(frames: Iterator[np.ndarray], last: int) -> Iterator[np.ndarray]:
    for _, frame in zip(range(last + 1), frames):
        yield frame


def digest(parts: list[bytes]) -> bytes:
    """Hash of several texts, 16 bytes; where one ends counts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()
