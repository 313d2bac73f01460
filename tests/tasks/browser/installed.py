"""Skip tests, with the reason, where Chromium, its driver or the pages are missing."""

import pytest

from tasks.browser.chromium import BrowserError, find_programs
from tasks.browser.page import pages_folder


def require_browser() -> None:
    """Skip a test on a machine without browser, driver or pages."""
    try:
        find_programs()
        pages_folder()
    except BrowserError as error:
        pytest.skip(str(error))
