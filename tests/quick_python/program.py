"""Start the server of this process's tests and write the program that asks it."""

import atexit
import functools
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent


@functools.cache
def quick_python() -> str:
    """The path of a program that is given the arguments of `python` and does what it does, several seconds sooner.

    A program that is a module (-m) or a file runs in a process of its own, forked from a server that has imported the
    libraries which mmrl imports, and nothing of mmrl: it has the caller's working directory, environment, cores,
    streams and arguments, receives its signals, and dies with it. Everything else (-c, -I) is done by the interpreter
    itself. The server ends with the process that called this function.
    """
    folder = tempfile.mkdtemp(prefix="quick_python")
    place, path = Path(folder) / "socket", Path(folder) / "python"
    client = [sys.executable, "-I", "-S", str(FOLDER / "client.py"), str(place), sys.executable]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    path.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-P", "-E", str(FOLDER / "server.py"), str(place), str(path)],
        stdin=subprocess.PIPE,  # whose end tells the server that this process is gone
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return str(path)
