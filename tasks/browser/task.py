"""Tasks in a browser: the pages of MiniWoB++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mmrl.core.types import Prompt
from tasks.browser.actions import ACTIONS, describe_actions
from tasks.browser.environment import BrowserEnvironment
from tasks.browser.page import HEIGHT, QUERY_HEIGHT, WIDTH
from tasks.environment import TextEnvironmentTask
from tasks.generated import to_tuples

CLICK_PAGES = (
    "click-test",
    "click-test-2",
    "click-button",
    "click-color",
    "click-dialog",
    "click-dialog-2",
    "click-link",
    "click-tab",
    "click-widget",
    "focus-text",
    "focus-text-2",
    "grid-coordinate",
)
"""Pages that one click solves and that have an expert."""


@dataclass(frozen=True)
class Browser(TextEnvironmentTask):
    """MiniWoB++'s pages in headless Chromium: do what the query at the top of a page asks.

    A problem is the name of a page and a seed, from which the page draws its content; no seed is in both splits.
    Source: Reinforcement Learning on Web Interfaces using Workflow-Guided Exploration, 2018, arXiv:1802.08802.

    Args:
        pages: names of pages, equally likely. CLICK_PAGES, click-checkboxes and enter-text have an expert.
        view: what the screenshot and the grid span: the whole "page" of 160 x 210 pixels, or the "area" of 160 x 160
            below the query, which the policy has as text.
        columns: cells of the grid across; a click hits the middle of its cell. None: one per pixel.
        rows: cells of the grid from top to bottom; None: one per pixel.
        screenshot: whether observations show the page.
        scale: of the screenshot's edges.
        elements: whether observations list the visible elements: number, tag, text, cell.
        actions: kinds that are allowed, of click, click_element, type, press, scroll and wait.
        time_limit_s: page time of an episode; None keeps the page's own, mostly 10 s.
        step_s: page time that an action takes; page time stands still while the policy thinks.
        reload: load the document for every episode. False restarts a loaded one, as MiniWoB++ does; the pages of
            CLICK_PAGES then have the same pixels, and an episode takes a fifth of the CPU time.
        explanation: begins every observation; None describes the actions.
    """

    name = "browser"
    packages = ("miniwob",)
    pages: Sequence[str] = CLICK_PAGES
    view: Literal["page", "area"] = "page"
    columns: int | None = None
    rows: int | None = None
    screenshot: bool = True
    scale: float = 1.0
    elements: bool = False
    actions: Sequence[str] = ("click", "type", "press", "scroll", "wait")
    time_limit_s: float | None = None
    step_s: float = 0.5
    reload: bool = True
    explanation: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "pages", "actions")
        for key, most in (("columns", WIDTH), ("rows", HEIGHT - self.top)):
            count = getattr(self, key)
            object.__setattr__(self, key, most if count is None else count)
            if not 1 <= getattr(self, key) <= most:
                raise ValueError(f"task browser: {key} must be 1 to {most}, one per pixel, got {count}")
        if not self.actions or not set(self.actions) <= set(ACTIONS):
            raise ValueError(f"task browser: actions must be some of {ACTIONS}, got {self.actions}")
        if "click_element" in self.actions and not self.elements:
            raise ValueError("task browser: click_element needs the numbers of the elements; set elements=true")
        if not (self.pages and (self.screenshot or self.elements)):
            raise ValueError("task browser: name at least one of pages, and show a screenshot or elements")
        if not 0 < self.scale <= 1 or self.step_s <= 0 or (self.time_limit_s or 1) <= 0:
            raise ValueError(
                f"task browser: need 0 < scale <= 1, step_s > 0 and time_limit_s > 0, got {self.scale}, {self.step_s} "
                f"and {self.time_limit_s}"
            )

    @property
    def top(self) -> int:
        """Upper edge of the view in CSS pixels."""
        return QUERY_HEIGHT if self.view == "area" else 0

    def locate(self, column: int, row: int) -> tuple[float, float]:
        """Return the middle of a cell in CSS pixels."""
        assert self.columns and self.rows
        return (column + 0.5) * WIDTH / self.columns, self.top + (row + 0.5) * (HEIGHT - self.top) / self.rows

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Return the cell of a place in CSS pixels, or the nearest one."""
        assert self.columns and self.rows
        column, row = int(x * self.columns / WIDTH), int((y - self.top) * self.rows / (HEIGHT - self.top))
        return min(max(column, 0), self.columns - 1), min(max(row, 0), self.rows - 1)

    def draw(self, rng: np.random.Generator) -> tuple[str, str]:
        return self.pages[rng.integers(len(self.pages))], str(rng.integers(2**53))

    def split_key(self, problem: tuple[str, str]) -> str:
        return problem[1]

    def explain(self, problem: tuple[str, str]) -> str:
        if self.explanation is not None:
            return self.explanation
        assert self.columns and self.rows
        return f"Do what the web page asks. Actions: {describe_actions(self.actions, self.columns, self.rows)}."

    def write_prompt(self, problem: tuple[str, str], key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        return replace(prompt, info={**prompt.info, "task": problem[0]})

    def make_environment(self) -> BrowserEnvironment:
        return BrowserEnvironment(self)
