"""Browsers that are used again by one episode after another, in this process alone."""

from __future__ import annotations

import os
import threading
import weakref

from tasks.browser.page import Page


class PagePool:
    """Pages that are shown in browsers of this process; a page is lent to one episode at a time.

    A browser that shows the wanted page is preferred, so that the page need not be loaded again; others are started
    for that up to `size`. Lending never waits: there are at least as many browsers as ever ran episodes at a time.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._idle: list[Page] = []
        self._starting = 0
        self.lent: weakref.WeakSet[Page] = weakref.WeakSet()  # a page without another reference is closed
        self._lock = threading.RLock()  # an environment that is collected as garbage gives its page back at any time
        self._owner = os.getpid()

    def acquire(self, name: str) -> Page:
        """Lend a browser, if possible one that shows this page."""
        with self._lock:
            if self._owner != os.getpid():  # after a fork the browsers belong to the parent
                self._idle, self.lent, self._owner = [], weakref.WeakSet(), os.getpid()
            fitting = [page for page in self._idle if page.name == name]
            full = len(self._idle) + len(self.lent) + self._starting >= self.size
            page = fitting[0] if fitting else self._idle[0] if self._idle and full else None
            if page is not None:
                self._idle.remove(page)
                self.lent.add(page)
                return page
            self._starting += 1
        try:
            page = Page()
            with self._lock:
                self.lent.add(page)
            return page
        finally:
            with self._lock:
                self._starting -= 1

    def release(self, page: Page, broken: bool = False) -> None:
        """Take a browser back; a broken one is ended."""
        with self._lock:
            self.lent.discard(page)
            if not broken:
                self._idle.append(page)
        if broken:
            page.close()

    def close(self) -> None:
        """End the idle browsers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for page in idle:
            page.close()


POOL = PagePool()
"""The browsers of this process."""
