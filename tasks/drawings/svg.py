"""SVG of plain shapes: what may be written, and its rendering by resvg."""

from __future__ import annotations

import io
import re
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
from PIL import Image

PAINT = {"fill", "stroke", "stroke-width", "opacity"}
ELEMENTS = {
    "svg": {"viewBox", "width", "height"},
    "g": set(),
    "rect": {"x", "y", "width", "height", "rx", "ry"},
    "circle": {"cx", "cy", "r"},
    "ellipse": {"cx", "cy", "rx", "ry"},
    "line": {"x1", "y1", "x2", "y2"},
    "polyline": {"points"},
    "polygon": {"points"},
    "path": {"d"},
}
"""Elements that an answer may have, with their attributes beside PAINT. None of them reads a file or an address."""

NAMESPACE = "{http://www.w3.org/2000/svg}"
_VALUE = re.compile(r"[\w\s#.,%+()-]*", re.ASCII)
_WRITTEN = 80  # characters of an element at most, on average


def import_resvg() -> ModuleType:
    """Import resvg-py; raises with the command that installs it."""
    try:
        import resvg_py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"task 'drawings_svg' needs the package {error.name}: pip install 'mmrl-lightning[svg]'"
        ) from error
    return resvg_py


def is_plain(text: str, longest: int) -> bool:
    """Return whether a text is SVG of the elements above, at most `longest` of them, without references or styles."""
    if len(text) > _WRITTEN * longest or "<!" in text or "<?" in text:  # document types define entities that explode
        return False
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return False
    elements = list(root.iter())
    return (
        root.tag.removeprefix(NAMESPACE) == "svg"
        and len(elements) <= longest
        and all(_is_plain_element(element) for element in elements)
    )


def _is_plain_element(element: ElementTree.Element) -> bool:
    attributes = ELEMENTS.get(element.tag.removeprefix(NAMESPACE))
    return (
        attributes is not None
        and not (element.text or "").strip()
        and not (element.tail or "").strip()
        and element.attrib.keys() <= attributes | PAINT
        and all(_VALUE.fullmatch(value) and "url" not in value for value in element.attrib.values())
    )


def render_svg(text: str, size: int) -> np.ndarray | None:
    """Render SVG on white without smoothed edges, uint8 [size, size, 3]; None if resvg cannot read it."""
    try:
        encoded = import_resvg().svg_to_bytes(
            svg_string=text,
            width=size,
            height=size,
            background="white",
            skip_system_fonts=True,
            shape_rendering="crisp_edges",
        )
    except ValueError:
        return None
    image = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
    return image if image.shape == (size, size, 3) else None
