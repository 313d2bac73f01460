"""A MiniWoB++ page as a text environment: screenshot and text in, mouse and keys out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.browser.actions import BrowserAction, parse_action
from tasks.browser.chromium import BrowserError
from tasks.browser.page import HEIGHT, WIDTH, Element, Page, Report
from tasks.browser.pool import POOL

if TYPE_CHECKING:
    from tasks.browser.task import Browser

SCROLL = 40  # CSS pixels of one action


class BrowserEnvironment(TextEnvironment):
    """One page in a browser of the process's pool, which has it from reset to the end of the episode.

    The reward of the last step is the page's, in [-1, 1], without MiniWoB++'s time penalty. Scores: exact (the reward
    is 1) and partial (the reward, at least 0). What is no action costs the time of one.
    A browser that ended raises a BrowserError; the next episode gets another one.
    """

    def __init__(self, task: Browser):
        self.task = task
        self._page: Page | None = None
        self._elements: list[Element] = []

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.close()
        self._page = POOL.acquire(prompt.info["task"])
        return self._run(lambda page: page.open(*prompt.info["problem"], self.task.time_limit_s, self.task.reload))

    def apply(self, action: str) -> TextStep:
        task = self.task
        read = parse_action(action.strip(), task.actions, task.columns, task.rows)
        valid = read is not None and (read.kind != "click_element" or read.element < len(self._elements))

        def act(page: Page) -> Report:
            if valid:
                assert read is not None
                self._perform(page, read)
            return page.proceed(task.step_s)

        return self._run(act, valid)

    def expert_action(self) -> str:
        assert self._page is not None
        action = self._page.expert(self.task.columns, self.task.rows, self.task.top)
        if "type" in action:
            return f"type {json.dumps(action['type'])}"
        if "click" in self.task.actions:
            return f"click {action['column']} {action['row']}"
        if action["element"] < 0:
            raise NotImplementedError(
                f"the expert of page {self._page.name!r} clicks what is no listed element: allow click in actions"
            )
        return f"click #{action['element']}"

    def random_action(self, rng: np.random.Generator) -> str:
        if "click" not in self.task.actions and self._elements:
            return f"click #{rng.integers(len(self._elements))}"
        return f"click {rng.integers(self.task.columns)} {rng.integers(self.task.rows)}"

    def close(self) -> None:
        """Give the browser back."""
        self._release()

    def __del__(self) -> None:
        self._release()

    def _release(self, broken: bool = False) -> None:
        page, self._page = self._page, None
        if page is not None:
            POOL.release(page, broken)

    def _run(self, function: Callable[[Page], Report], valid: bool = True) -> TextStep:
        """Call a function of the page and observe what it left; a browser that fails is ended."""
        if self._page is None:
            raise ValueError("the episode is over; call reset before step")
        try:
            step = self._observe(self._page, function(self._page), valid)
        except BrowserError:
            self._release(broken=True)
            raise
        if step.done:
            self._release()
        return step

    def _perform(self, page: Page, action: BrowserAction) -> None:
        x, y = self.task.locate(action.column, action.row)
        if action.kind == "click":
            page.click(x, y)
        elif action.kind == "click_element":
            element = self._elements[action.element]
            page.click(element.x, element.y)
        elif action.kind == "type":
            page.type(action.text)
        elif action.kind == "press":
            page.press(action.text)
        elif action.kind == "scroll":
            page.scroll(x, y, SCROLL if action.text == "down" else -SCROLL)

    def _observe(self, page: Page, report: Report, valid: bool) -> TextStep:
        task = self.task
        lines, images = ["", report.query], ()
        over = report.done or len(self._actions) >= task.max_turns
        if not over and task.elements:
            self._elements = page.elements()
            lines += [self._describe(number, element) for number, element in enumerate(self._elements)]
        if not over and task.screenshot:
            images = (self._draw(page),)
        reward = float(report.reward) if report.done else 0.0
        return TextStep(
            "\n".join([*lines, ">"]),
            images=images,
            reward=reward,
            terminated=report.done,
            truncated=over and not report.done,
            valid=valid,
            scores={"exact": float(reward >= 1), "partial": min(max(reward, 0.0), 1.0)},
        )

    def _draw(self, page: Page) -> np.ndarray:
        task = self.task
        shot = page.screenshot().crop((0, task.top, WIDTH, HEIGHT))
        if task.scale != 1:
            shot = shot.resize((round(shot.width * task.scale), round(shot.height * task.scale)), Image.Resampling.BOX)
        return np.asarray(shot)

    def _describe(self, number: int, element: Element) -> str:
        """Describe an element: number, tag, text, the cell of its middle, and what is special about it."""
        column, row = self.task.cell(element.x, element.y)
        marks = [mark for mark, holds in (("focused", element.focused), ("checked", element.checked)) if holds]
        return " ".join([f"#{number}", element.tag, json.dumps(element.text), f"{column} {row}", *marks])
