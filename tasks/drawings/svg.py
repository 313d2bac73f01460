"""SVG of plain shapes: what may be written, and its rendering by resvg."""

from __future__ import annotations

import io
import re
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
from PIL import Image, ImageColor

from mmrl.core.installation.optional_packages import import_optional

PAINT = {
    *("fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap"),
    *("stroke-linejoin", "opacity", "shape-rendering"),
}
"""Attributes of all elements, and properties of their attribute `style`."""
NAMES = {"id", "class", "style", "transform", "role", "aria-label"}
ELEMENTS = {
    "svg": {"viewBox", "width", "height", "version", "preserveAspectRatio"},
    "g": set(),
    "rect": {"x", "y", "width", "height", "rx", "ry"},
    "circle": {"cx", "cy", "r"},
    "ellipse": {"cx", "cy", "rx", "ry"},
    "line": {"x1", "y1", "x2", "y2"},
    "polyline": {"points"},
    "polygon": {"points"},
    "path": {"d"},
    "title": set(),
    "desc": set(),
    "metadata": set(),
    "defs": set(),
}
"""Elements that an answer may have, with their attributes beside PAINT and NAMES. None of them reads a file or an
address."""
LARGEST, SMALLEST = 10_000.0, 1e-4
"""Bounds of the absolute values of numbers other than 0: the time of an arc grows with its size."""

NAMESPACE = "{http://www.w3.org/2000/svg}"
_VALUE = re.compile(r"[\w\s#.,%+()-]*", re.ASCII)
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COLOUR = re.compile(r"#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})|(?:rgb|hsl)a?\([0-9\s.,%+-]+\)", re.IGNORECASE)
_COLOUR_WORDS = {"none", "transparent", "currentcolor", "inherit", *ImageColor.colormap}
_WORDED = {
    "fill",
    "stroke",
    "id",
    "class",
    "role",
    "aria-label",
}  # attributes whose digits are no numbers, as in #ff0000
_HEAD = re.compile(r"(?:<\?xml\s[^<>?]*\?>\s*)?(?:<!DOCTYPE\s+svg[^<>\[\]]*>\s*)?")
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_WRITTEN = 80  # characters of an element at most, on average
_STARTS = 3  # lines, from the end, at which an SVG may begin


def import_resvg() -> ModuleType:
    """Import resvg-py; raises with the command that installs it."""
    return import_optional("resvg_py", "task 'drawings_svg'")


def find_svg(text: str, longest: int) -> str | None:
    """Find the SVG with which a text, or its last code block, ends: from the start of a line to `</svg>`.

    A declaration of XML or of the document type before it, and comments in it, are left out.

    Args:
        text: an answer.
        longest: number of elements.

    Returns None where there is none, or where `is_plain` refuses it.
    """
    lines = text.strip().splitlines()
    if lines and lines[-1].strip() == "```":
        start = max((i for i, line in enumerate(lines[:-1]) if line.startswith("```")), default=len(lines))
        lines = lines[start + 1 : -1]
    starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("<svg", "<?xml", "<!DOCTYPE svg"))]
    for start in starts[: -_STARTS - 1 : -1]:
        source = "\n".join(lines[start:]).strip()
        if len(source) > _WRITTEN * longest:
            return None
        svg = _COMMENT.sub("", _HEAD.sub("", source, count=1))
        if is_plain(svg, longest):
            return svg
    return None


def is_plain(text: str, longest: int) -> bool:
    """Return whether a text is SVG of the elements above, at most `longest` of them, without references."""
    if len(text) > _WRITTEN * longest or "<!" in text or "<?" in text:  # document types define entities that explode
        return False
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return False
    elements = list(root.iter())
    return (
        root.tag.removeprefix(NAMESPACE) == "svg"
        and len(elements) <= longest
        and all(_is_plain_element(element) for element in elements)
    )


def _is_plain_element(element: ElementTree.Element) -> bool:
    tag = element.tag.removeprefix(NAMESPACE)
    attributes = ELEMENTS.get(tag)
    return (
        attributes is not None
        and (tag in ("title", "desc", "metadata") or not (element.text or "").strip())
        and not (element.tail or "").strip()
        and element.attrib.keys() <= attributes | PAINT | NAMES
        and all(_is_plain_value(name, value) for name, value in element.attrib.items())
    )


def _is_plain_value(name: str, value: str) -> bool:
    if name == "style":
        pairs = [part.partition(":") for part in value.split(";") if part.strip()]
        return all(key.strip() in PAINT and _is_plain_value(key.strip(), text) for key, _, text in pairs)
    if not _VALUE.fullmatch(value) or "url" in value:
        return False
    if name in ("fill", "stroke") and not is_colour(value):
        return False
    numbers = [] if name in _WORDED else [float(number) for number in _NUMBER.findall(value)]
    return all(number == 0 or SMALLEST <= number <= LARGEST for number in numbers)


def is_colour(text: str) -> bool:
    """Return whether a text is a colour, as a word, #rrggbb or rgb(...): resvg paints other texts black."""
    text = text.strip()
    return text.lower() in _COLOUR_WORDS or _COLOUR.fullmatch(text) is not None


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
