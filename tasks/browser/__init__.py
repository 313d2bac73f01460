"""Web pages in a real browser."""

from tasks.browser.task import Browser

__all__ = ["Browser"]
