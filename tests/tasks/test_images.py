"""Image files: their orientation, and what is behind transparent pixels."""

import io

import numpy as np
import pytest
from PIL import ExifTags, Image

from tasks.images import image_size, load_image

UPRIGHT = np.zeros((16, 32, 3), np.uint8)
UPRIGHT[:8, :8] = 255  # a white corner at the upper left

STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.swapaxes(0, 1),
    6: np.rot90(UPRIGHT),
    7: np.rot90(UPRIGHT, 2).swapaxes(0, 1),
    8: np.rot90(UPRIGHT, -1),
}
"""Pixels of the file by the orientation that its EXIF states, so that the image is upright."""


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", list(STORED))
def test_an_image_has_the_orientation_that_exif_states(form, orientation):
    exif, file = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    options = {"quality": 100} if form == "JPEG" else {"lossless": True} if form == "WEBP" else {}
    Image.fromarray(np.ascontiguousarray(STORED[orientation])).save(file, form, exif=exif, **options)
    image = load_image(file.getvalue(), "row 1")
    assert image.shape == UPRIGHT.shape and np.abs(image.astype(int) - UPRIGHT).max() < 30
    assert image_size(file.getvalue(), "row 1") == UPRIGHT.shape[:2]
