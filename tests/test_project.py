"""Modules of the working directory come after installed ones; its tasks stand beside mmrl's."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mmrl

ROOT = Path(mmrl.__file__).parents[1]
CODE = """
import sys
from pathlib import Path
from mmrl.commands.project import enter_project
enter_project(Path("first"))
enter_project(Path("."))
import tasks.arithmetic.task, tasks.mine, sims.point, hydra, my_module
print(tasks.mine.__file__, my_module.__file__, hydra.__version__, "first" in str(sys.path))
try:
    import tasks.of_first
except ImportError:
    print("left")
"""


@pytest.mark.parametrize("regular", [False, True], ids=["namespace", "package with __init__"])
def test_modules_are_found_and_hide_none(tmp_path, regular):
    for name in ("tasks/mine/__init__.py", "my_module.py", "hydra.py", "first/tasks/of_first/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    if regular:
        (tmp_path / "tasks" / "__init__.py").write_text("raise RuntimeError('this is another project')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", CODE], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    mine, module, version, first, left = ran.stdout.split()
    assert (mine, module) == (f"{tmp_path}/tasks/mine/__init__.py", f"{tmp_path}/my_module.py")
    assert version.startswith("1.") and first == "False" and left == "left"


@pytest.mark.parametrize("command", ["module", "script"])
def test_the_command_line_finds_the_working_directory_last(tmp_path, command):
    (tmp_path / "omegaconf.py").write_text("raise RuntimeError('hidden')")
    (tmp_path / "walk.py").write_text(
        "import mmrl.rewards.base as b\n\n\nclass Mine(b.Reward):\n"
        "    def __call__(self, group):\n        return [0.0 for _ in group]\n"
    )
    words = {"module": ["-m", "mmrl"], "script": ["-c", "import sys; from mmrl.__main__ import main; sys.exit(main())"]}
    python = [sys.executable, *(["-P"] if command == "script" else []), *words[command]]
    arguments = ["fit", "recipe=grpo", "reward._target_=walk.Mine", "reward.nope=1", "--print_config"]
    ran = subprocess.run(
        [*python, *arguments], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert "hidden" not in ran.stderr and "No module named" not in ran.stderr
    assert "nope" in ran.stderr and "walk.Mine" in ran.stderr  # the class was found, and has no such argument


WALL_CLOCK = {"time": {"time", "time_ns"}, "datetime": {"now", "utcnow", "today"}, "date": {"today"}}
"""Functions that read a clock which somebody may set, by the last name before the point."""


def reads_wall_clock(source):
    """Whether a module asks for the time of day, or imports the function that does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in WALL_CLOCK.get(owner, ()) or node.attr == "CLOCK_REALTIME":
                return True
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        if names & {*WALL_CLOCK["time"], "CLOCK_REALTIME"} and node.module == "time":
            return True
    return False


def test_limits_of_time_are_of_a_clock_that_does_not_jump():
    """The time of day is set by others; replies say when they were made."""
    rooms = [file for room in ("mmrl", "tasks", "sims") for file in (ROOT / room).rglob("*.py")]
    users = {str(file.relative_to(ROOT)) for file in rooms if reads_wall_clock(file.read_text())}
    assert users == {"mmrl/engines/endpoint/reply.py"}


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("import time\nbegan = time.time()", True),
        ("import time\nclock = time.time", True),
        ("from time import time, sleep", True),
        ("import time\nclock = time.time_ns", True),
        ("import datetime\nnow = datetime.datetime.now()", True),
        ("from datetime import date\nnow = date.today()", True),
        ("import time\ntime.clock_gettime(time.CLOCK_REALTIME)", True),
        ("import time\nbegan = time.monotonic() - time.perf_counter()", False),
        ("from time import monotonic, sleep", False),
    ],
)
def test_a_clock_that_jumps_is_found_in_any_form(source, reads):
    assert reads_wall_clock(source) == reads
