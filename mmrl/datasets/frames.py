"""Camera images of an episode, decoded on access."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.video_file import decode
from mmrl.media.images import open_image


class Frames(ABC):
    """Images of an episode with the interface of an array uint8 [T, H, W, 3]: length, shape, indices and slices."""

    dtype = np.dtype(np.uint8)
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        indices = np.arange(len(self))[index]
        return self._one(int(indices)) if indices.ndim == 0 else self._many(indices.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)

    @abstractmethod
    def _one(self, step: int) -> np.ndarray: ...

    def _many(self, steps: list[int]) -> np.ndarray:
        return np.stack([self._one(step) for step in steps]) if steps else np.empty((0, *self.shape[1:]), np.uint8)


class EncodedImages(Frames):
    """Images that are encoded one by one, for example as PNG.

    Args:
        encoded: bytes of each image.
        shape: required (H, W, C) of an image.
        where: file and episode, for messages.
    """

    def __init__(self, encoded: Sequence[bytes], shape: tuple[int, ...], where: str):
        self.encoded, self.where = encoded, where
        self.shape = (len(encoded), *shape)

    def _one(self, step: int) -> np.ndarray:
        try:
            with open_image(self.encoded[step]) as opened:
                if opened.size != (self.shape[2], self.shape[1]):  # before decoding, which could take any memory
                    raise ValueError(f"it has {opened.size[0]} x {opened.size[1]} pixels")
                image = np.array(opened.convert("RGB"))
        except ValueError as error:
            raise ValueError(f"{self.where}: the image of control step {step} cannot be decoded: {error}") from error
        if image.shape != self.shape[1:]:
            raise ValueError(f"{self.where}: the image of control step {step} is {image.shape}, not {self.shape[1:]}")
        return image


class VideoFrames(Frames):
    """Images from a part of a video file, decoded at the first access and cached.

    Args:
        path: path of the video.
        start_s: time of the first image in the file, seconds.
        count: T, number of images.
        fps: frames per second of the file.
        shape: (H, W, C) of a frame.
    """

    def __init__(self, path: Path, start_s: float, count: int, fps: float, shape: tuple[int, ...]):
        self.path, self.start_s, self.fps = path, start_s, fps
        self.shape = (count, *shape)
        self._decoded: np.ndarray | None = None

    def _all(self) -> np.ndarray:
        if self._decoded is None:
            self._decoded = decode(self.path, self.start_s, self.shape[0], self.fps, self.shape[1:])
        return self._decoded

    def _one(self, step: int) -> np.ndarray:
        return self._all()[step]

    def _many(self, steps: list[int]) -> np.ndarray:
        return self._all()[steps]


class HDF5Frames(Frames):
    """Images [T, H, W, C] of an open HDF5 file, read on access.

    Args:
        rows: the HDF5 dataset.
        where: file and array, for messages.
        remedy: end of the messages.
    """

    def __init__(self, rows: Any, where: str, remedy: str):
        self.rows, self.where, self.remedy = rows, where, remedy
        self.shape = tuple(rows.shape)

    def _one(self, step: int) -> np.ndarray:
        return self._read(step)

    def _many(self, steps: list[int]) -> np.ndarray:
        return self._read(slice(None))[steps]

    def _read(self, index: int | slice) -> np.ndarray:
        try:
            return self.rows[index]
        except (OSError, RuntimeError, MemoryError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.where}: images cannot be read ({reason}); {self.remedy}") from error
