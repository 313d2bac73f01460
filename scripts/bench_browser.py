"""Speed of task=browser: python scripts/bench_browser.py [--pages 4] [--seconds 10].

One JSON line on stdout for each measure, over all pages together: steps (a click on an empty place, page time and a
screenshot), restarts and loads (an episode of one click from its reset on, on a page that is there already or that is
loaded for it).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tasks.browser.page import Page
from tasks.browser.task import CLICK_PAGES


def click(page: Page, count: int) -> None:
    """A step of an episode that goes on."""
    page.click(2, 205)
    page.proceed(0.001)
    page.screenshot()


def play(page: Page, count: int, reload: bool) -> None:
    """An episode of one click."""
    page.open(CLICK_PAGES[0] if not reload else CLICK_PAGES[count % len(CLICK_PAGES)], str(count), reload=reload)
    page.screenshot()
    page.click(80, 130)
    page.proceed(0.5)


def measure(pages: list[Page], function: Callable[[Page, int], None], seconds: float) -> float:
    """Return the calls a second of all pages, each of which has a thread."""
    counts = [0] * len(pages)
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            function(pages[number], counts[number])
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(pages))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=4, help="browsers at a time")
    parser.add_argument("--seconds", type=float, default=10.0, help="per measure")
    options = parser.parse_args()
    pages = [Page() for _ in range(options.pages)]
    for page in pages:
        page.open("click-test", "0", time_limit_s=3600)
    measures: dict[str, Callable[[Page, int], None]] = {
        "steps": click,
        "restarts": lambda page, count: play(page, count, reload=False),
        "loads": lambda page, count: play(page, count, reload=True),
    }
    for name, function in measures.items():
        rate = measure(pages, function, options.seconds)
        row = {"name": f"browser/{name}", "pages": len(pages), "per_second": round(rate, 1), "cpus": os.cpu_count()}
        print(json.dumps({**row, "chromium": pages[0].browser.version}), flush=True)
    for page in pages:
        page.close()


if __name__ == "__main__":
    main()
