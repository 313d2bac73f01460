"""Open an HTML file in headless Chromium, and ask its page questions; tests skip where there is no Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1200,1400")


class Page:
    """What happened on a page: `messages` are console errors, exceptions and requests beyond the file itself."""

    def __init__(self, answers: list[Any], messages: list[str]):
        self.answers, self.messages = answers, messages


def open_page(file: Path, *questions: str) -> Page:
    """Load a file, evaluate JavaScript expressions in order, and collect everything that the page reports."""
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine")
    with _start() as port:
        return asyncio.run(_ask(port, file, questions))


@contextlib.contextmanager
def _start() -> Iterator[int]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [str(PROGRAM), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            found, until = Path(folder) / "DevToolsActivePort", time.monotonic() + 60
            while not found.exists() or not found.read_text():
                assert time.monotonic() < until and process.poll() is None, "Chromium did not start"
                time.sleep(0.05)
            yield int(found.read_text().split()[0])
        finally:
            process.terminate()
            process.wait()


async def _ask(port: int, file: Path, questions: tuple[str, ...]) -> Page:
    messages: list[str] = []
    answers: list[Any] = []
    async with aiohttp.ClientSession() as session:
        targets = await (await session.get(f"http://127.0.0.1:{port}/json")).json()
        place = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
        async with session.ws_connect(place, max_msg_size=0) as socket:
            number = 0

            async def call(method: str, **parameters: Any) -> dict[str, Any]:
                nonlocal number
                number += 1
                await socket.send_json({"id": number, "method": method, "params": parameters})
                while True:
                    message = await asyncio.wait_for(socket.receive_json(), 60)
                    if message.get("id") == number:
                        return message["result"]
                    _collect(message, file, messages)

            for domain in ("Page", "Runtime", "Log", "Network"):
                await call(f"{domain}.enable")
            await call("Page.navigate", url=file.resolve().as_uri())
            ready = "document.readyState"
            while (await call("Runtime.evaluate", expression=ready))["result"]["value"] != "complete":
                await asyncio.sleep(0.05)
            for question in questions:
                answer = await call("Runtime.evaluate", expression=question, returnByValue=True)
                assert "exceptionDetails" not in answer, answer
                answers.append(answer["result"].get("value"))
    return Page(answers, messages)


def _collect(message: dict[str, Any], file: Path, messages: list[str]) -> None:
    method, parameters = message.get("method"), message.get("params", {})
    noisy = method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning")
    if noisy or method in ("Runtime.exceptionThrown", "Log.entryAdded"):
        messages.append(str(parameters))
    elif method == "Network.requestWillBeSent":
        url = parameters["request"]["url"]
        if not url.startswith("data:") and url != file.resolve().as_uri():
            messages.append(f"request: {url}")
