import os
import signal
import subprocess
import sys
import time

import pytest

from mmrl.runs import child_process

PARENT = """
import os, sys
from mmrl.runs import child_process
child_process.run([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], os.environ)
"""


def test_a_command_that_fails_is_an_error_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        child_process.run([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    assert caught.value.returncode == 3
    child_process.run([sys.executable, "-c", ""], os.environ)
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_waits_takes_the_command_along():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    number = int(parent.stdout.readline())
    parent.terminate()
    assert parent.wait(30) == 128 + signal.SIGTERM
    for _ in range(100):
        if not _alive(number):
            return
        time.sleep(0.1)
    os.kill(number, signal.SIGKILL)
    pytest.fail("the command outlived the process that waited for it")


def _alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
