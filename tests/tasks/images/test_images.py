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


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P"])
def test_black_ink_on_a_transparent_image_is_seen(mode):
    alpha = np.zeros((4, 4), np.uint8)
    alpha[1, 2], alpha[3, 3] = 255, 128
    image, file, options = Image.new("RGBA", (4, 4)), io.BytesIO(), {}
    image.putalpha(Image.fromarray(alpha))
    if mode == "P":
        image, options = Image.fromarray((alpha > 200).astype(np.uint8)), {"transparency": 0}
        image = image.convert("P")
        image.putpalette([0, 0, 0] * 2)
    image.convert(mode).save(file, "TIFF" if mode == "PA" else "PNG", **options)
    shown = load_image(file.getvalue(), "row 1")
    assert shown[1, 2].tolist() == [0, 0, 0] and shown[0, 0].tolist() == [255, 255, 255]
    assert mode == "P" or shown[3, 3].tolist() == [127, 127, 127]
