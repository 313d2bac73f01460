"""Read images and proprioception of a raw observation as tensors, or refuse them by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def read_image(name: str, value: Any) -> Tensor:
    """Return an image uint8 [H, W, 3].

    Raises:
        ValueError: the observation of this name is something else.
    """
    image = np.asarray(value)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"observation {name!r} must be uint8 [H, W, 3], got {image.dtype} {image.shape}")
    return torch.as_tensor(image)


def read_proprio(value: Any, dims: int) -> Tensor:
    """Return proprioception, float32 [dims].

    Raises:
        ValueError: it is no array of as many numbers.
    """
    try:
        proprio = torch.as_tensor(np.asarray(value, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise ValueError(f"observation 'proprio' must be {dims} numbers ({error})") from error
    if proprio.shape != (dims,):
        raise ValueError(f"observation 'proprio' has shape {tuple(proprio.shape)}, but policy.proprio_dims is {dims}")
    return proprio
