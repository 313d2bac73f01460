"""Browsers of the tests."""

import pytest

from tasks.browser.page import Page
from tasks.browser.pool import POOL
from tests.tasks.browser.installed import require_browser


@pytest.fixture(scope="session", autouse=True)
def installed():
    require_browser()
    yield
    POOL.close()


@pytest.fixture(scope="module")
def page(installed):
    page = Page()
    yield page
    page.close()
