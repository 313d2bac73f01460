"""Questions about details of rendered pages, which are searched for and looked at closely."""

from tasks.pages.task import Pages

__all__ = ["Pages"]
