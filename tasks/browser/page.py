"""A MiniWoB++ page in a browser: page time, pixels, elements, mouse and keys."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image

from mmrl.core.installation.optional_packages import format_missing
from tasks.browser.chromium import BrowserError, Chromium

WIDTH, HEIGHT = 160, 210  # of a task
QUERY_HEIGHT = 50  # of the bar above the area, which shows the query
WINDOW = (500, 320)  # MiniWoB++'s: dialogs and menus are placed by it
OUTSIDE = (WINDOW[0] - 1, WINDOW[1] - 1)  # a place without elements
SETTLE_MS = 50  # page time between the start of an episode and its first screenshot
_LOAD_S = 20.0  # limit of loading a page
_SCRIPTS = ("page.js", "experts.js")

KEYS: Mapping[str, tuple[str, int, str]] = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Space": (" ", 32, " "),
    "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""),
    "Escape": ("Escape", 27, ""),
    "Up": ("ArrowUp", 38, ""),
    "Down": ("ArrowDown", 40, ""),
    "Left": ("ArrowLeft", 37, ""),
    "Right": ("ArrowRight", 39, ""),
}
"""By name, the key's DOM name, its Windows key code and the text that it types."""


@dataclass(frozen=True)
class Report:
    """What a page says of its episode: query, end, reward in [-1, 1] without time penalty, and page time left."""

    query: str
    done: bool
    reward: float
    reason: str | None
    remaining_s: float


@dataclass(frozen=True)
class Element:
    """A visible element: tag, own text or value, whether it has the focus or is checked.

    `x` and `y` are the place in CSS pixels, nearest to its middle, where a click hits it and nothing that covers it.
    """

    tag: str
    text: str
    x: float
    y: float
    focused: bool
    checked: bool


@cache
def pages_folder() -> Path:
    """Return the folder of the pages that the package `miniwob` ships; raises where it is not installed."""
    spec = find_spec("miniwob")  # the package itself is not imported: it registers environments and changes logging
    if spec is None or spec.origin is None:
        raise BrowserError(format_missing("task 'browser'", "miniwob"))
    return Path(spec.origin).parent / "html" / "miniwob"


def page_names() -> list[str]:
    """Return the names of all pages, sorted."""
    return sorted(path.stem for path in pages_folder().glob("*.html"))


@cache
def _injected_script() -> str:
    return "\n".join((Path(__file__).parent / name).read_text() for name in _SCRIPTS)


class Page:
    """One tab that plays one episode after another. A page is a function of its name, its seed and the actions.

    Every episode loads the document anew. Page time stands still between the calls: `proceed` moves it on.

    Raises:
        BrowserError: if the browser has ended or does not answer.
    """

    def __init__(self) -> None:
        self.browser = Chromium(*WINDOW)
        self.browser.command("Emulation.setFocusEmulationEnabled", enabled=True)
        self.browser.command("Page.addScriptToEvaluateOnNewDocument", source=_injected_script())
        self.name, self._loads = "", 0

    def open(self, name: str, seed: str, time_limit_s: float | None = None, reload: bool = True) -> Report:
        """Start the episode of a seed.

        Args:
            name: of the page; another one than before is always loaded.
            seed: text that the page draws its random numbers from.
            time_limit_s: page time of the episode; None keeps the page's own, mostly 10 s.
            reload: load the document anew. False restarts the loaded one, which takes a fifth of the CPU time; what a
                page keeps from its last episode then stays.
        """
        self._mouse("mouseMoved", *OUTSIDE)  # no element is under the mouse at the start
        if reload or name != self.name:
            self.name = ""
            self._load(name)
        limit = 0 if time_limit_s is None else round(1000 * time_limit_s)
        return self._report(f"mmrl.start({json.dumps(seed)}, {limit}, {SETTLE_MS})")

    def _load(self, name: str) -> None:
        """Load a document and wait for it."""
        self._loads += 1  # in the address, so that the document before is not taken for this one
        path = pages_folder() / f"{name}.html"
        if not path.exists():
            raise ValueError(f"MiniWoB++ has no page {name!r}; its pages are {', '.join(page_names())}")
        address = f"{path.as_uri()}?{self._loads}"
        self.browser.command("Page.navigate", url=address)
        loaded = f"typeof mmrl === 'object' && location.search === '?{self._loads}' "
        loaded += " && typeof core === 'object' && !!core.cover_div"
        end = time.monotonic() + _LOAD_S
        while time.monotonic() < end:
            if self._evaluate(loaded):
                self.name = name
                return
            time.sleep(0.002)
        raise BrowserError(f"page {name!r} does not load")

    def proceed(self, seconds: float) -> Report:
        """Move page time on, run the timers that fall due, and report."""
        return self._report(f"mmrl.proceed({round(1000 * seconds)})")

    def screenshot(self) -> Image.Image:
        """Return the area of the task as an RGB image of 160 x 210 pixels."""
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
        shot = self.browser.command("Page.captureScreenshot", format="png", optimizeForSpeed=True, clip=clip)
        return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")

    def elements(self) -> list[Element]:
        """Return the visible elements that have a text or can be used, in the order of the document."""
        return [Element(**fields) for fields in self._evaluate("mmrl.elements()")]

    def expert(self, columns: int = WIDTH, rows: int = HEIGHT, top: int = 0) -> dict[str, Any]:
        """Return the expert's next action: {column, row, element}, or {type: text}.

        Column and row are the cell of a grid to click; the grid spans the page below `top`. A click hits the middle of
        its cell; of the cells that hit the target it is the one nearest to the target's middle. `element` is the number
        in `elements` of what is clicked, -1 where it is not listed.
        """
        action = self._evaluate(f"mmrl.expert('{self.name}', {columns}, {rows}, {top})")
        if action is None:
            raise NotImplementedError(
                f"page {self.name!r} has no expert; see tasks/browser/experts.js for those that do"
            )
        return dict(action)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button at a place in CSS pixels."""
        self._mouse("mouseMoved", x, y)
        self._mouse("mousePressed", x, y, button="left", clickCount=1)
        self._mouse("mouseReleased", x, y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus, key by key."""
        for letter in text:
            key = {"key": letter, "text": letter}
            self.browser.command("Input.dispatchKeyEvent", type="keyDown", **key)
            self.browser.command("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, name: str) -> None:
        """Press and release one of KEYS."""
        key, code, text = KEYS[name]
        fields = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.browser.command("Input.dispatchKeyEvent", type="keyDown", text=text, **fields)
        self.browser.command("Input.dispatchKeyEvent", type="keyUp", **fields)

    def scroll(self, x: float, y: float, distance: float) -> None:
        """Scroll what is at a place and can be scrolled by so many pixels, down if positive."""
        self._evaluate(f"mmrl.scroll({x}, {y}, {distance})")

    def close(self) -> None:
        """End the browser."""
        self.browser.close()

    def _mouse(self, kind: str, x: float, y: float, **fields: Any) -> None:
        self.browser.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **fields)

    def _report(self, call: str) -> Report:
        fields = self._evaluate(call)
        fields["remaining_s"] = fields.pop("remaining") / 1000
        return Report(**fields)

    def _evaluate(self, expression: str) -> Any:
        result = self.browser.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            raise BrowserError(f"page {self.name!r}: {text.splitlines()[0]}")
        return result["result"].get("value")
