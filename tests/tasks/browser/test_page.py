"""Pages: one seed gives one page and the same pixels, page time is counted, experts solve their pages."""

import http.server
import threading

import numpy as np
import pytest

from tasks.browser.page import HEIGHT, WIDTH, Page, page_names
from tasks.browser.task import CLICK_PAGES

SOLVED = (*CLICK_PAGES, "click-checkboxes", "enter-text")


def shot(page):
    return np.asarray(page.screenshot())


def follow_expert(page, columns=WIDTH, rows=HEIGHT, most=12):
    """Play the expert until the page is done; return its last report."""
    for _ in range(most):
        action = page.expert(columns, rows)
        if "type" in action:
            page.type(action["type"])
        else:
            page.click((action["column"] + 0.5) * WIDTH / columns, (action["row"] + 0.5) * HEIGHT / rows)
        report = page.proceed(0.1)
        if report.done:
            break
    return report


@pytest.mark.parametrize("name", SOLVED)
def test_the_expert_solves_its_page(page, name):
    for seed in "abc":
        page.open(name, seed, reload=False)
        report = follow_expert(page)
        assert report.done and report.reward == 1


@pytest.mark.parametrize("name", CLICK_PAGES)
def test_a_restarted_page_has_the_pixels_of_a_loaded_one(page, name):
    fresh = {}
    for seed in ("1", "2", "3"):
        assert not page.open(name, seed).done
        fresh[seed] = shot(page)
    assert len({image.tobytes() for image in fresh.values()}) > 1
    for seed in ("3", "1", "2"):
        page.open(name, "between", reload=False)
        page.click(80, 120)  # whatever the last episode did
        page.proceed(0.5)
        page.open(name, seed, reload=False)
        assert (shot(page) == fresh[seed]).all()


def test_two_browsers_show_the_same_pixels_after_the_same_actions(page):
    other = Page()
    try:
        shots = []
        for each in (page, other):
            each.open("click-tab-2", "7")  # jQuery UI, with effects
            frames = [shot(each)]
            for x, y in ((40, 70), (120, 70), (80, 150)):
                each.click(x, y)
                report = each.proceed(0.25)
                frames.append(shot(each))
            shots.append((report, [frame.tobytes() for frame in frames]))
        assert shots[0] == shots[1] and len(set(shots[0][1])) > 1
    finally:
        other.close()


def test_animations_timers_dates_and_random_numbers_follow_page_time_alone(page):
    page.open("click-test", "1")
    script = """(async () => {
      const seen = [];
      setInterval(() => seen.push('tick'), 100);
      setTimeout(() => seen.push('late'), 250);
      requestAnimationFrame(() => seen.push('frame'));
      const before = [Date.now(), performance.now()];
      await mmrl.proceed(300);
      return [seen, Date.now() - before[0], performance.now() - before[1], new Date().getFullYear(), Date().length > 0];
    })()"""
    seen, dated, elapsed, year, _ = page._evaluate(script)
    assert seen == ["frame", "tick", "tick", "late", "tick"] and (dated, elapsed, year) == (300, 300, 2020)
    first = page._evaluate("Math.random()")
    page.open("click-test", "1")
    again = page._evaluate("Math.random()")
    page.open("click-test", "2")
    assert first == again != page._evaluate("Math.random()")


def test_page_time_runs_out(page):
    report = page.open("click-test", "1", time_limit_s=2)
    assert report.remaining_s == pytest.approx(1.95)
    assert not page.proceed(1.9).done
    late = page.proceed(0.1)
    assert late.done and late.reward == -1 and late.remaining_s == 0
    assert page.open("click-test", "1", reload=False).remaining_s == pytest.approx(9.95)  # the page's own limit again


def test_elements_have_texts_and_places(page):
    page.open("click-test-2", "1")
    found = {element.text: element for element in page.elements()}
    assert {"ONE", "TWO"} <= set(found) and found["ONE"].tag == "button"
    page.click(found["TWO"].x, found["TWO"].y)
    assert page.proceed(0.1).reward == -1


def test_an_element_is_clicked_where_nothing_covers_it(page):
    """In this episode the middle of button ONE is under button TWO."""
    page.open("click-test-2", "1696489289313673")
    one, two = page.elements()
    box = page._evaluate("(({left, top, width, height}) => [left + width / 2, top + height / 2])"
                         "(document.querySelector('#subbtn').getBoundingClientRect())")  # fmt: skip
    assert page._evaluate(f"document.elementFromPoint({box[0]}, {box[1]}).textContent") == two.text == "TWO"
    page.click(one.x, one.y)
    assert one.text == "ONE" and page.proceed(0.1).reward == 1


def test_keys_reach_the_focused_field(page):
    page.open("enter-text", "1")
    page.click((page.expert()["column"] + 0.5), (page.expert()["row"] + 0.5))
    page.type("aB!c")
    page.press("Backspace")
    page.press("Left")
    page.type("x")
    assert page._evaluate("document.querySelector('#tt').value") == "aBx!"


def test_what_overflows_can_be_scrolled(page):
    page.open("scroll-text", "1")
    height = "document.querySelector('textarea').scrollTop"
    assert page._evaluate(height) == 0
    page.scroll(60, 100, 40)
    assert page._evaluate(height) == 40
    page.scroll(60, 100, -40)
    assert page._evaluate(height) == 0


def test_no_page_reaches_the_network_by_name(page):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    asked: list[str] = []
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page.open("click-test", "1")
        address = f"http://localhost:{server.server_port}/"
        answer = f"fetch('{address}', {{mode: 'no-cors'}}).then(() => 'reached', () => 'blocked')"
        assert page._evaluate(answer) == "blocked" and not asked
    finally:
        server.shutdown()


def test_errors_name_the_page(page):
    page.open("click-pie", "1")
    with pytest.raises(NotImplementedError, match="click-pie"):
        page.expert()
    with pytest.raises(ValueError, match=r"no-such-page.*click-test"):
        page.open("no-such-page", "1")
    assert not page.open("click-test", "1").done
    assert len(page_names()) > 100
