"""Scene descriptions without texture files, for drawing without OpenGL: each texture becomes its mean colour."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ElementTree

import numpy as np

_DARK = 8  # of 255: what an unused part of a texture has at most


def flatten_textures(xml: str) -> str:
    """Replace textured materials by materials of the texture's mean colour; a model is then half as large."""
    root = ElementTree.fromstring(xml)
    colours = {}
    for texture in list(root.iter("texture")):
        if "file" in texture.attrib and texture.get("type") != "skybox":
            colours[texture.get("name")] = mean_colour(texture.attrib["file"])
    for asset in root.iter("asset"):
        for texture in [each for each in asset.findall("texture") if each.get("name") in colours]:
            asset.remove(texture)
    for material in root.iter("material"):
        if material.get("texture") in colours:
            colour = np.array(colours[material.attrib.pop("texture")])
            dye = np.array([float(part) for part in material.get("rgba", "1 1 1 1").split()])
            material.set("rgba", " ".join(f"{part:.4f}" for part in [*(colour * dye[:3]), dye[3]]))
    return ElementTree.tostring(root, encoding="unicode")


@functools.cache
def mean_colour(file: str) -> tuple[float, float, float]:
    """Mean red, green and blue of an image file in [0, 1], without its black parts, which no surface shows."""
    from PIL import Image

    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB").resize((128, 128))).reshape(-1, 3)
    lit = pixels[pixels.max(axis=1) > _DARK]
    red, green, blue = (lit if len(lit) else pixels).mean(axis=0) / 255
    return float(red), float(green), float(blue)
