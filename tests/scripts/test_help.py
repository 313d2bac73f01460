"""Every script starts: `python scripts/NAME.py --help` says what it does."""

import contextlib
import importlib.util
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick_python import quick_python

SCRIPTS = Path(__file__).parents[2] / "scripts"
ROOMS = ("", "control", "install", "peers", "robots", "scale")
PROGRAMS = sorted(file for room in ROOMS for file in (SCRIPTS / room).glob("*.py") if "__main__" in file.read_text())
GUESTS = {"trl_losses": "trl", "trl_reward_losses": "trl"}
"""Scripts that import a library which not every environment has."""


def read_help(file: Path) -> str:
    """What a script prints for --help, as a program of its own does; an error as its text."""
    printed, path, arguments = io.StringIO(), list(sys.path), sys.argv
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file), "--help"]
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return printed.getvalue() if end.code in (0, None) else f"exit status {end.code}"
    except Exception as error:  # shown by the test of the script
        return f"{type(error).__name__}: {error}"
    finally:
        sys.path[:], sys.argv = path, arguments
    return "no end after the help"


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of all scripts, by one process, since most of them import mmrl."""
    names = [str(file) for file in PROGRAMS if importlib.util.find_spec(GUESTS.get(file.stem, "sys"))]
    command = [quick_python(), "-m", "tests.scripts.test_help", *names]
    end = subprocess.run(command, cwd=SCRIPTS.parent, check=True, text=True, capture_output=True)
    return json.loads(end.stdout.splitlines()[-1])


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_a_script_says_what_it_does(file, helps):
    pytest.importorskip(GUESTS.get(file.stem, "sys"))
    line = re.match(r'"""(.*?)(?:"""|\n\n)', file.read_text(), flags=re.DOTALL)
    assert line is not None and line[1].splitlines()[0] in " ".join(helps[file.stem].split())


if __name__ == "__main__":
    print(json.dumps({Path(name).stem: read_help(Path(name)) for name in sys.argv[1:]}))
