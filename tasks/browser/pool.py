"""Browsers that are used again by one episode after another, in this process alone."""

from __future__ import annotations

import os
import threading

from tasks.browser.page import Page


class PagePool:
    """Pages that are shown in browsers of this process; a page is lent to one episode at a time.

    An idle browser that shows the wanted page is preferred, so that the page need not be loaded again. Lending never
    waits: there are as many browsers as episodes run at a time, and up to `size` stay open in between.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._idle: list[Page] = []
        self._lent = 0
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def acquire(self, name: str) -> Page:
        """Lend a browser, if possible one that shows this page."""
        with self._lock:
            if self._owner != os.getpid():  # after a fork the browsers belong to the parent
                self._idle, self._lent, self._owner = [], 0, os.getpid()
            self._lent += 1
            fitting = [page for page in self._idle if page.name == name]
            full = len(self._idle) + self._lent > self.size
            page = fitting[0] if fitting else self._idle[0] if self._idle and full else None
            if page is not None:
                self._idle.remove(page)
                return page
        try:
            return Page()
        except BaseException:
            with self._lock:
                self._lent -= 1
            raise

    def release(self, page: Page, broken: bool = False) -> None:
        """Take a browser back; a broken one is ended."""
        with self._lock:
            self._lent -= 1
            keep = not broken and len(self._idle) + self._lent < self.size
            if keep:
                self._idle.append(page)
        if not keep:
            page.close()

    def close(self) -> None:
        """End the idle browsers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for page in idle:
            page.close()


POOL = PagePool()
"""The browsers of this process."""
