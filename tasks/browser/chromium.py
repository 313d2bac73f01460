"""Headless Chromium behind its driver: a process tree and a profile of its own, which end together.

The WebDriver protocol is JSON over HTTP, so that no client library is needed; Selenium's, which looks for browsers and
drivers on the network, is not used.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import weakref
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses its sandbox to root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-gpu-vsync",  # a screenshot does not wait for the next frame of a monitor
    "--disable-frame-rate-limit",
    "--disable-lcd-text",
    "--disable-checker-imaging",  # no screenshot without images that are still decoded
    "--disable-partial-raster",
    "--disable-smooth-scrolling",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name is ever looked up
    "--remote-debugging-pipe",  # no port; Chromium ends when its driver does
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_STARTED = re.compile(r"started successfully on port (\d+)")
_STARTS = 3  # of a driver that finds its port taken
_START_S, _ANSWER_S = 90.0, 20.0  # limits of a start on a busy machine, and of a command


class BrowserError(RuntimeError):
    """The browser or its driver does not answer, or has ended."""


def find_programs() -> tuple[str, str]:
    """Return the paths of Chromium and of its driver; a BrowserError says which one is missing."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "chromium" if browser is None else "chromedriver"
        raise BrowserError(f"{missing} is not on the PATH; on Debian and Ubuntu: apt install chromium chromium-driver")
    return browser, driver


class Chromium:
    """A browser with one tab, sized width x height CSS pixels; `command` sends it commands of its DevTools protocol.

    The driver listens on a port of 127.0.0.1 that the kernel chose. All processes are in one group, which is killed
    when the browser is closed, collected as garbage, or at the end of Python; where Python itself is killed, the kernel
    kills the driver.

    Raises:
        BrowserError: if a program is missing or stops answering.
    """

    def __init__(self, width: int, height: int):
        browser, driver = find_programs()
        self.folder = tempfile.mkdtemp(prefix="mmrl-chromium-")
        self.process, port = _start_driver(driver)
        self._end = weakref.finalize(self, _end, os.getpid(), self.process, self.folder)
        try:
            self._driver = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
            session = self._start_session(browser)
            self._driver.sock.settimeout(_ANSWER_S)
            self.session, self.version = session["sessionId"], session["capabilities"]["browserVersion"]
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.command("Emulation.setDeviceMetricsOverride", **size)
        except BaseException:
            self.close()
            raise

    def _start_session(self, browser: str) -> dict[str, Any]:
        options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={self.folder}"]}
        # "none": `Page` waits itself for what it loads
        capabilities = {"browserName": "chrome", "pageLoadStrategy": "none", "goog:chromeOptions": options}
        return dict(self._request("/session", {"capabilities": {"alwaysMatch": capabilities}}))

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol and return its result."""
        if not self._end.alive:
            raise BrowserError(f"{name}: the browser is closed")
        return self._request(f"/session/{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _request(self, path: str, body: dict[str, Any]) -> Any:
        """Send a command of the WebDriver protocol and return its value."""
        try:
            self._driver.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            value = json.load(self._driver.getresponse())["value"]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BrowserError(f"the driver does not answer: {type(error).__name__}: {error}") from error
        if isinstance(value, dict) and "error" in value and "message" in value:
            raise BrowserError(f"{value['error']}: {value['message'].splitlines()[0]}")
        return value

    def close(self) -> None:
        """End all processes of the browser and delete its profile."""
        self._end()


def _guard() -> list[str]:
    """Return the command that lets the kernel end the driver with Python, without root's capabilities.

    With them Chromium raises its own priority above that of the trainer.
    """
    if shutil.which("setpriv") is None:
        return []
    capabilities = ["--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    return ["setpriv", "--pdeathsig", "KILL", *capabilities, "--"]


def _start_driver(driver: str) -> tuple[subprocess.Popen[str], int]:
    """Start the driver; return its process and the port at which it listens.

    The driver wants one free port for both kinds of addresses. The kernel chooses it for one of them alone, and where
    another program has it for the other, the driver ends; then it is started again.
    """
    for _ in range(_STARTS):
        process = subprocess.Popen(
            [*_guard(), driver, "--port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if match := _STARTED.search(line):
                return process, int(match[1])
            lines.append(line)
        process.wait()
    said = "".join(lines).strip() or "without a word"
    raise BrowserError(f"chromedriver ended with status {process.returncode} before it listened: {said[-500:]}")


def _end(owner: int, process: subprocess.Popen[str], folder: str) -> None:
    if os.getpid() != owner:  # a fork: the browser is the parent's
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)
