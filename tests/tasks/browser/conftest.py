"""Browser of the tests of one file; they skip, with the reason, where Chromium, its driver or the pages are missing."""

import pytest

from tasks.browser.chromium import BrowserError, find_programs
from tasks.browser.page import Page, pages_folder
from tasks.browser.pool import POOL


@pytest.fixture(scope="session", autouse=True)
def installed():
    try:
        find_programs()
        pages_folder()
    except BrowserError as error:
        pytest.skip(str(error))
    yield
    POOL.close()


@pytest.fixture(scope="module")
def page(installed):
    page = Page()
    yield page
    page.close()
