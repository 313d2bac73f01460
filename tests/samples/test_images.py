"""Thumbnails: small images stay as they are, large ones shrink."""

import base64
import io

import numpy as np
from PIL import Image

from mmrl.samples.images import SIDE, encode_thumbnail


def decode(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_a_small_image_keeps_its_pixels():
    image = np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(decode(encode_thumbnail(image))), image)


def test_a_large_image_shrinks_and_keeps_its_ratio():
    image = np.zeros((600, 300, 3), dtype=np.uint8)
    uri = encode_thumbnail(image)
    assert decode(uri).size == (SIDE // 2, SIDE) and len(uri) < 2000


def test_a_grey_image_is_encoded():
    assert decode(encode_thumbnail(np.full((8, 8, 1), 7, dtype=np.uint8))).getpixel((0, 0)) == (7, 7, 7)
