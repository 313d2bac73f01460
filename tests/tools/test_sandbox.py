"""What a program in the sandbox can do, and what becomes of one that tries more."""

import os
import socket
import threading
from pathlib import Path

import pytest

from mmrl.tools.hands import Hands
from mmrl.tools.markup import Call
from mmrl.tools.sandbox import ExecutorDown, Limits, Python, Sandbox


@pytest.fixture(scope="module")
def sandbox():
    made = Sandbox(Limits(seconds=20.0, cpu_seconds=1, memory_mb=128, files_mb=1, output=1000))
    yield made
    made.close()


def test_programs_print_and_fail_by_name(sandbox):
    done = sandbox.run_all(["print(sorted([3, 1, 2]))", "1 / 0", "def", "import sys; sys.exit(0)", "exit(2)"])
    assert [d.outcome for d in done[:3]] == ["ok", "raised", "raised"] and done[0].output == "[1, 2, 3]\n"
    assert done[1].reason == "ZeroDivisionError: division by zero" and done[2].reason.startswith("SyntaxError")
    assert done[3].outcome == "ok" and done[4].outcome == "raised"


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("while True: pass", "timed_out"),
        ("x = [0] * (1 << 30)", "out_of_memory"),
        ("print('x' * 10_000_000)", "too_long"),
        ("import os; os.write(1, b'\\xff\\xfe')", "not_text"),
        ("import os; os.abort()", "killed"),
        ("open('f', 'wb').write(b'x' * (2 << 20))", "raised"),
    ],
)
def test_limits_have_names(sandbox, source, outcome):
    assert sandbox.run(source).outcome == outcome
    assert sandbox.run("print(1)").output == "1\n"  # and the next one runs


def test_a_program_that_sleeps_is_ended():
    short = Sandbox(Limits(seconds=0.3))
    assert short.run("import time; time.sleep(60)").outcome == "timed_out"
    short.close()


def test_there_is_no_network(sandbox):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
    done = sandbox.run(reach)
    server.close()
    assert done.outcome == "raised" and "PermissionError" in done.reason


@pytest.mark.parametrize(
    "source",
    [
        "import os; os.fork()",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.kill(os.getppid(), 9)",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))",
    ],
)
def test_there_is_nobody_else(sandbox, source):
    done = sandbox.run(source)
    assert done.outcome == "raised" and "Error" in done.reason
    assert sandbox.run("print(1)").output == "1\n"


def test_threads_are_allowed(sandbox):
    source = "import threading; t = threading.Thread(target=print, args=(4,)); t.start(); t.join()"
    assert sandbox.run(source).output == "4\n"


def test_the_folder_is_private_and_gone_afterwards(sandbox, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("keep")
    os.chmod(tmp_path, 0o777)
    os.chmod(mine, 0o666)
    done = sandbox.run("import os; open('f', 'w').write('x'); print(os.getcwd(), os.listdir('.'), os.environ['HOME'])")
    folder, listed, home = done.output.split()
    assert listed == "['f']" and home == folder and not Path(folder).exists()
    for source in (
        f"open({str(mine)!r}, 'w')",
        f"import os; os.remove({str(mine)!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
    ):
        assert "PermissionError" in sandbox.run(source).reason
    assert mine.read_text() == "keep"


def test_a_worker_that_dies_is_begun_again(sandbox):
    sandbox.run("print(1)")
    sandbox._worker.kill()
    assert sandbox.run("print(2)").output == "2\n"


def test_an_executor_that_is_down_says_so(monkeypatch, tmp_path):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit(1)")
    monkeypatch.setattr("mmrl.tools.sandbox.WORKER", broken)
    with pytest.raises(ExecutorDown, match="died twice"):
        Sandbox().run("print(1)")


def test_programs_are_a_tool():
    tool = Python().start(None)
    hands = Hands()
    for source, outcome, text in (
        ("print(6 * 7)", "ok", "42\n"),
        ("1 / 0", "ProgramFailed", "raised ZeroDivisionError"),
    ):
        pending = hands.begin(Call("python", source), {"python": tool})
        hands.wait([pending])
        answer = hands.end(pending)
        assert answer.outcome == outcome and answer.text.startswith(text)
    tool.finish()
    assert threading.active_count() < 50
    with pytest.raises(ValueError, match=r"limits\.seconds"):
        Limits(seconds=0)
