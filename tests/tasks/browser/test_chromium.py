"""Browsers: they share nothing, all processes end, and a killed one is a named error."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.browser.chromium import BrowserError, Chromium, _start_driver, find_programs


def processes(folder):
    """Command lines of the living processes that use this profile."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line:
            found.append(line)
    return found


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_browsers_share_neither_profile_nor_port_nor_process():
    first, second = Chromium(200, 200), Chromium(200, 200)
    try:
        assert first.folder != second.folder and first.process.pid != second.process.pid
        assert first._driver.port != second._driver.port
        lines = processes(first.folder)
        assert lines and not any(second.folder.encode() in line for line in lines)
        assert not any(b"--remote-debugging-port" in line for line in lines)  # nothing else can reach the browser
        first.close()
        assert second.command("Browser.getVersion")["product"]
    finally:
        first.close()
        second.close()


def test_closing_ends_all_processes_and_deletes_the_profile():
    browser = Chromium(200, 200)
    assert processes(browser.folder) and Path(browser.folder).exists()
    browser.close()
    assert wait_for(lambda: not processes(browser.folder)) and not Path(browser.folder).exists()
    with pytest.raises(BrowserError, match="closed"):
        browser.command("Browser.getVersion")
    browser.close()


def test_a_killed_browser_is_a_named_error():
    browser = Chromium(200, 200)
    os.killpg(browser.process.pid, signal.SIGKILL)
    with pytest.raises(BrowserError, match="does not answer"):
        browser.command("Browser.getVersion")
    browser.close()


SCRIPT = """
import os, sys, time
from tasks.browser.chromium import Chromium
browser = Chromium(200, 200)
print(browser.folder, 'selenium' in sys.modules, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["pass", "raise RuntimeError('a bug')", "os.kill(os.getpid(), 9)"])
def test_no_process_outlives_python(end):
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True)
    folder, selenium = done.stdout.split()
    assert wait_for(lambda: not processes(folder)) and selenium == "False"


@pytest.mark.parametrize("failures", [2, 3])
def test_a_driver_that_finds_its_port_taken_is_started_again(failures, tmp_path):
    """A program that ends with status 1 so many times, as the driver does where a port is free for one kind alone."""
    program = tmp_path / "driver"
    program.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/starts\n"
        f"[ $(wc -l < {tmp_path}/starts) -le {failures} ] && echo 'port is taken' && exit 1\n"
        "echo 'ChromeDriver was started successfully on port 4321.'\n"
    )
    program.chmod(0o755)
    if failures == 2:
        process, port = _start_driver(str(program))
        assert port == 4321 and process.wait() == 0
    else:
        with pytest.raises(BrowserError, match="ended with status 1 before it listened: port is taken"):
            _start_driver(str(program))


def test_a_missing_program_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BrowserError, match=r"chromium is not on the PATH.*apt install"):
        find_programs()
