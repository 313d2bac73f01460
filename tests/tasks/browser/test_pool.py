"""The pool: browsers are used again by page, never by two episodes at once, and not beyond its size."""

import pytest

from tasks.browser.pool import POOL, PagePool
from tasks.browser.task import Browser


@pytest.fixture
def pool():
    pool = PagePool(size=2)
    yield pool
    pool.close()


def test_an_idle_browser_that_shows_the_page_is_preferred(pool):
    first, second = pool.acquire("click-test"), pool.acquire("focus-text")
    assert first is not second
    first.open("click-test", "1")
    second.open("focus-text", "1")
    pool.release(first)
    pool.release(second)
    assert pool.acquire("focus-text") is second and pool.acquire("click-color") is first


def test_lending_never_waits_and_no_browser_is_started_twice(pool):
    for _ in range(2):
        lent = [pool.acquire("click-test") for _ in range(3)]
        assert len({id(page) for page in lent}) == 3
        for page in lent:
            pool.release(page)
        assert {id(page) for page in lent} == {id(page) for page in pool._idle}
    pool.close()
    assert all(page.browser.process.poll() is not None for page in lent)


def test_a_broken_browser_is_not_lent_again(pool):
    page = pool.acquire("click-test")
    pool.release(page, broken=True)
    assert page.browser.process.poll() is not None and pool.acquire("click-test") is not page


def test_an_environment_that_is_dropped_gives_its_browser_back():
    environment = Browser(pages=["focus-text"]).make_environment()
    environment.reset(Browser(pages=["focus-text"])[0])
    page = environment._page
    del environment
    assert POOL.acquire("focus-text") is page
    POOL.release(page)
