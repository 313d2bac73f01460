"""What a program in the sandbox can do, how it ends, and what becomes of a sandbox that cannot be had."""

import json
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from mmrl.tools.call_parser import ToolCall
from mmrl.tools.executor import ToolExecutor
from mmrl.tools.sandbox import ExecutorDown, Limits, Python, Sandbox
from mmrl.tools.sandbox.tool import _idle
from tests.tools.confined import in_process


@pytest.fixture(scope="module")
def sandbox():
    actual = Sandbox(Limits(seconds=20.0, cpu_seconds=1, memory_mb=128, files_mb=1, output=1000))
    yield actual
    actual.close()


def test_programs_print_and_fail_by_name(sandbox):
    done = sandbox.run_all(["print(sorted([3, 1, 2]))", "1 / 0", "def", "import sys; sys.exit(0)", "exit(2)"])
    assert [d.outcome for d in done[:3]] == ["ok", "raised", "raised"] and done[0].output == "[1, 2, 3]\n"
    assert done[1].reason == "ZeroDivisionError: division by zero" and done[2].reason.startswith("SyntaxError")
    assert done[3].outcome == "ok" and done[4].outcome == "raised"
    assert sandbox.run("print(1); raise KeyError('k')").output == "1\n"
    assert sandbox.run("print('\\ud800')").reason.startswith("UnicodeEncodeError")
    assert sandbox.run("x = '\ud800'").reason.startswith("UnicodeEncodeError") and "null" in sandbox.run("\0").reason


BENIGN = {
    "import json; print(json.loads(json.dumps({'a': [1, 2.5, None]})))": "{'a': [1, 2.5, None]}",
    "import re; print(re.findall(r'\\d+', 'a1b22'))": "['1', '22']",
    "import math; print(math.gcd(12, 18), round(math.sin(1), 3))": "6 0.841",
    "import random; random.seed(0); print(random.randint(0, 9), len({random.random() for _ in range(9)}))": "6 9",
    "import itertools; print(list(itertools.permutations('ab')))": "[('a', 'b'), ('b', 'a')]",
    "import collections; print(collections.Counter('aab').most_common(1))": "[('a', 2)]",
    "import decimal; print(decimal.Decimal('0.1') + decimal.Decimal('0.2'))": "0.3",
    "import fractions; print(fractions.Fraction(1, 3) + 1)": "4/3",
    "import datetime; print(datetime.date(2024, 2, 29) + datetime.timedelta(365))": "2025-02-28",
    "import datetime; print(datetime.datetime.strptime('2024-02-29', '%Y-%m-%d').day)": "29",
    "import time; time.sleep(0.01); print(time.time() > 1e9, time.localtime().tm_year > 2000)": "True True",
    "import hashlib; print(hashlib.sha256(b'').hexdigest()[:8], hashlib.md5(b'').hexdigest()[:4])": "e3b0c442 d41d",
    "import unicodedata; print(unicodedata.name('é'), 'ß'.upper())": "LATIN SMALL LETTER E WITH ACUTE SS",
    "f = lambda n: 1 if n < 2 else n * f(n - 1); print(f(300) % 997)": "815",
    "import functools\n@functools.cache\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n"
    "print(f(90))": "2880067194370816120",
    "import sys; sys.setrecursionlimit(9000)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(5000))": "5000",
    "print('ä 日本 🙂')": "ä 日本 🙂",
    "open('f', 'w').write('ä'); print(open('f').read())": "ä",
    "import os; os.makedirs('a/b'); open('a/b/c', 'w').close(); "
    "print([n for _, _, n in os.walk('.')])": "[[], [], ['c']]",
    "import tempfile; f = tempfile.NamedTemporaryFile('w+'); f.write('x'); f.seek(0); print(f.read())": "x",
    "import shutil; open('f', 'w').write('x'); shutil.copyfile('f', 'g'); shutil.move('g', 'h'); "
    "print(open('h').read())": "x",
    "import pathlib; p = pathlib.Path('f'); p.write_text('x'); print(p.stat().st_size); "
    "p.unlink(); print(p.exists())": "1\nFalse",
    "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: 'int' = 1\nprint(P(2))": "P(x=2)",
    "import typing\nclass C:\n    x: 'C'\nprint(typing.get_type_hints(C)['x'].__name__)": "C",
    "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))).__name__)": "C",
    "import statistics; print(statistics.median([3, 1, 2]))": "2",
    "import heapq, bisect; print(heapq.nsmallest(2, [3, 1, 2]), bisect.bisect([1, 2], 2))": "[1, 2] 2",
    "import csv, io; print(list(csv.reader(io.StringIO('a,b'))))": "[['a', 'b']]",
    "import zlib, bz2, lzma; "
    "print(zlib.decompress(zlib.compress(b'x')), bz2.decompress(bz2.compress(b'y')))": "b'x' b'y'",
    "import threading; t = threading.Thread(target=print, args=(4,)); t.start(); t.join()": "4",
    "import threading; threading.Thread(target=print, args=(5,)).start()": "5",
    "from concurrent.futures import ThreadPoolExecutor as P; print(list(P(4).map(abs, [-1, -2])))": "[1, 2]",
    "import queue, threading; q = queue.Queue(); threading.Timer(0.01, q.put, (6,)).start(); "
    "print(q.get(timeout=5))": "6",
    "import signal; signal.signal(14, lambda *_: print('ring')); signal.setitimer(0, 0.01); signal.pause()": "ring",
    "import os, sys; print(os.getcwd() == os.environ['HOME'], sys.argv, __name__)": "True ['program'] __main__",
    "import uuid, secrets; print(len(str(uuid.uuid4())), len(secrets.token_hex(4)))": "36 8",
    "import xml.etree.ElementTree as E; print(E.fromstring('<a b=\"1\"/>').get('b'))": "1",
    "import string, textwrap, difflib, calendar, operator, copy, enum, abc, array; "
    "print(calendar.isleap(2024))": "True",
    "import logging; logging.warning('w')": "WARNING:root:w",
    "import traceback\ntry: 1 / 0\n"
    "except ZeroDivisionError: print(traceback.format_exc().splitlines()[-1])": "ZeroDivisionError: division by zero",
    "import os; r, w = os.pipe(); os.write(w, b'x'); print(os.read(r, 1), os.isatty(1))": "b'x' False",
    "import ast; print(ast.literal_eval('[1, (2,)]'))": "[1, (2,)]",
    "try: input()\nexcept EOFError: print('nothing to read')": "nothing to read",
    "import ctypes; print(ctypes.sizeof(ctypes.c_long))": "8",
    "import sys; sys.stdout.write('no newline'); sys.exit()": "no newline",
    "import atexit, os; print('early', flush=True); os._exit(0)": "early",
}


def run_benign() -> list[str]:
    actual = Sandbox(Limits(seconds=20.0))
    runs = {source: (actual.run(source), shown) for source, shown in BENIGN.items()}
    actual.close()
    return [
        f"{source}: {ran}"
        for source, (ran, shown) in runs.items()
        if (ran.outcome, ran.output.strip()) != ("ok", shown)
    ]


@pytest.mark.parametrize("refused", [(), ("unshare", "mount")], ids=["own file system", "watched folder"])
def test_programs_that_do_no_harm_run(refused):
    assert in_process(run_benign, refused=refused) == []


def test_an_ordinary_user_runs_programs():
    assert in_process(run_benign, user=65534) == []


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


def test_a_program_that_sleeps_is_ended_at_its_limit():
    short = Sandbox(Limits(seconds=0.3))
    short.run("")
    began = time.monotonic()
    assert short.run("import time; time.sleep(60)").outcome == "timed_out"
    assert time.monotonic() - began < 30  # of 60 s, also on a busy machine
    short.close()


def test_a_program_that_closes_its_output_runs_to_its_end(sandbox):
    began = time.monotonic()
    assert sandbox.run("import os, time; os.closerange(0, 64); time.sleep(0.3)").outcome == "ok"
    assert time.monotonic() - began > 0.3


def test_a_program_has_its_output_and_one_pipe_open(sandbox):
    source = "import os\ndef open_files():\n    for end in range(99):\n        try: os.fstat(end); yield end\n"
    ran = sandbox.run(source + "        except OSError: pass\nprint(list(open_files()))")
    assert ran.output.startswith("[0, 1, 2, ") and ran.output.count(",") == 3


def test_an_early_exit_skips_what_was_appended_and_shows_in_the_output(sandbox):
    program, check = "import os\ndef double(x): os._exit(0)\n", "print([double(x) for x in (1, 2)])"
    ran = sandbox.run(program + check)
    # the program's own choice of an end is "ok"; a verifier compares what was printed with what it keeps to itself
    assert (ran.outcome, ran.output) == ("ok", "")
    assert sandbox.run("def double(x): return 2 * x\n" + check).output == "[2, 4]\n"


def test_a_program_finds_nothing_of_the_one_before(sandbox):
    sandbox.run("print('MARKER-123456')\nx = '''" + "MARKER-123456 " * 300 + "'''")
    ran = sandbox.run(
        "import ctypes, re\nlibc = ctypes.CDLL(None); libc.sbrk.restype = ctypes.c_void_p\n"
        "own = [('MARKER-' + str(654321 + i)).encode() * 300 for i in range(3)]\n"
        "end = libc.sbrk(0); heap = ctypes.string_at(end - (1 << 20), 1 << 20)\n"
        "print(sorted(set(re.findall(rb'MARKER-[0-9]{6}', heap))))"
    )
    assert ran.outcome == "ok" and "MARKER-654321" in ran.output and "123456" not in ran.output


def test_the_folder_is_private_and_gone_afterwards(sandbox):
    done = sandbox.run("import os; open('f', 'w').write('x'); print(os.getcwd(), os.listdir('.'), os.environ['HOME'])")
    folder, listed, home = done.output.split()
    assert listed == "['f']" and home == folder and not Path(folder).exists()
    assert sandbox.run("import os; print(os.listdir('.'))").output == "[]\n"


def grow() -> list[int]:
    """Megabytes that a program wrote before it was ended, and folders that are left."""
    actual = Sandbox(Limits(seconds=20.0, files_mb=4))
    source = "import os\nfor i in range(2000):\n    open(f'f{i}', 'wb').write(b'x' * (1 << 20)); os.write(1, b'.')"
    written = len(actual.run(source).output)
    folder = actual._folder
    actual._worker.kill()  # and the folder of a worker that was killed is removed too
    actual.close()
    return [written, folder is None or os.path.exists(folder)]


def test_a_watched_folder_stays_small():
    written, left = in_process(grow, refused=("unshare", "mount"))
    assert 4 <= written < 256 and not left


def test_a_worker_that_dies_is_begun_again(sandbox):
    sandbox.run("print(1)")
    sandbox._worker.kill()
    assert sandbox.run("print(2)").output == "2\n"
    copy = pickle.loads(pickle.dumps(sandbox))
    assert copy.limits == sandbox.limits and copy._worker is None


def test_nothing_outlives_the_process_that_began_it():
    reading, writing = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        actual = Sandbox(Limits(seconds=60.0))
        actual.run("")
        os.write(writing, str(actual._worker.pid).encode())
        actual.run("import time; time.sleep(60)")
        os._exit(0)
    session = int(os.read(reading, 20))
    os.close(reading), os.close(writing)
    late = time.monotonic() + 60
    while len(_members(session)) < 3 and time.monotonic() < late:
        time.sleep(0.02)
    assert len(_members(session)) == 3  # the worker, a supervisor and the program
    os.kill(trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    late = time.monotonic() + 60
    while _members(session) and time.monotonic() < late:
        time.sleep(0.02)
    assert _members(session) == []


def _members(session: int) -> list[int]:
    """Processes of a session that have not ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, _, _, own = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(own) == session and state not in "ZX":
                found.append(int(entry))
    return found


def try_missing() -> list[str]:
    """What a safe sandbox says, and what an unsafe one makes of a program."""
    try:
        Sandbox().run("print(1)")
        message = "it ran"
    except ExecutorDown as error:
        message = str(error)
    unsafe = Sandbox(unsafe=True)
    output = unsafe.run("print(1)").output
    unsafe.close()
    return [message, output]


@pytest.mark.parametrize(("call", "name"), [("landlock_create_ruleset", "Landlock"), ("seccomp", "seccomp")])
def test_a_machine_that_cannot_confine_is_refused_by_name(call, name):
    message, output = in_process(try_missing, refused=(call,))
    assert (
        message.startswith("programs cannot be confined on this machine")
        and name in message
        and "unsafe=True" in message
    )
    assert output == "1\n"


def test_other_systems_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ExecutorDown, match=r"darwin.*unsafe=True"):
        Sandbox().run("print(1)")


def test_an_unsafe_sandbox_says_what_is_missing(caplog):
    def warn() -> list[str]:
        actual = Sandbox(unsafe=True)
        actual.run("")
        actual.close()
        return [record.getMessage() for record in caplog.records]

    (warned,) = in_process(warn, refused=("landlock_create_ruleset",))
    assert "Landlock" in warned
    assert in_process(warn) == []  # where nothing is missing it confines like any other


def test_an_executor_that_is_down_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("mmrl.tools.sandbox.sandbox.FOLDER", tmp_path)
    with pytest.raises(ExecutorDown, match="died twice"):
        Sandbox().run("print(1)")


def test_programs_are_a_tool():
    num_threads = threading.active_count()  # other tests of this process keep some
    tool = Python().start(None)
    executor = ToolExecutor()
    for source, outcome, text in (
        ("print(6 * 7)", "ok", "42\n"),
        ("1 / 0", "ProgramFailed", "raised ZeroDivisionError"),
        ("print('\\x07')", "ok", "\ufffd\n"),  # no fault of the tool
    ):
        pending = executor.submit(ToolCall("python", source), {"python": tool})
        executor.wait([pending])
        answer = executor.result(pending)
        assert answer.outcome == outcome and answer.text.startswith(text)
    assert threading.active_count() - num_threads < 50


def test_sets_of_strings_have_the_same_order_in_every_worker():
    program = "print(''.join(set('abcdefghijklmnop')), hash('a'), {frozenset('xyz'), 'b', 1.5})"
    shown = set()
    for _ in range(3):
        one = Sandbox()
        shown.add(one.run(program).output)
        one.close()
    assert len(shown) == 1


def test_a_worker_finds_no_module_of_the_working_directory_or_the_environment(tmp_path, monkeypatch):
    for name in ("json", "re", "planted", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "planted.py"))
    one = Sandbox(Limits(output=5000))
    ran = one.run("import os, sys; print(sorted(os.environ), sys.path, sys.flags.no_user_site, sys.flags.safe_path)")
    assert ran.outcome == "ok" and ran.output.startswith("['HOME', 'PATH', 'TMPDIR']")
    assert ran.output.endswith(" 1 True\n") and str(tmp_path) not in ran.output and "-packages" not in ran.output
    assert one.run("import planted").reason.startswith("ModuleNotFoundError")
    one.close()
    assert not (tmp_path / "ran").exists()


def pid_of_worker(limits):
    """The worker that the next program with these limits runs in."""
    (idle,) = _idle[limits, False]
    return idle._worker.pid


def test_programs_of_episodes_that_follow_each_other_share_a_worker():
    limits, workers = Limits(output=4_321), []
    for number in range(3):
        tool = Python(limits).start(None)
        assert tool.run(f"print({number})") == f"{number}\n"
        tool.finish()
        workers.append(pid_of_worker(limits))
    assert len(set(workers)) == 1


def test_an_abandoned_program_prints_into_no_other_call():
    tool, executor = Python(Limits(output=4_322)).start(None), ToolExecutor()
    tool.run("")  # its worker has begun
    tool.timeout_s = 0.2
    pending = executor.submit(ToolCall("python", "import time; time.sleep(1); print('first')"), {"python": tool})
    executor.wait([pending])
    assert executor.result(pending).outcome == "timed_out"
    tool.finish()
    following = Python(Limits(output=4_322)).start(None)
    assert [following.run(f"print({number})") for number in range(3)] == ["0\n", "1\n", "2\n"]
    time.sleep(1)  # the abandoned program has ended, and its worker is used again
    assert [following.run(f"print({number})") for number in range(3)] == ["0\n", "1\n", "2\n"]


def test_calls_of_one_turn_run_at_the_same_time():
    tool, executor = Python(Limits(output=4_323)).start(None), ToolExecutor()
    tool.run("")
    calls = [ToolCall("python", f"import time; time.sleep(0.2); print({number})") for number in range(4)]
    pending = [executor.submit(call, {"python": tool}) for call in calls]
    executor.wait(pending)
    assert [executor.result(one).text for one in pending] == ["0\n", "1\n", "2\n", "3\n"]


def test_a_fork_of_the_trainer_has_a_worker_of_its_own(sandbox):
    sandbox.run("")
    own = sandbox._worker.pid
    assert in_process(lambda: [sandbox.run("print(1)").output, sandbox._worker.pid == own]) == ["1\n", False]
    assert sandbox.run("print(2)").output == "2\n" and sandbox._worker.pid == own


@pytest.mark.parametrize("values", [{"seconds": 0}, {"files": -1}, {"seconds": float("nan")}, {"output": 1 << 50}])
def test_limits_without_a_meaning_are_refused(values):
    with pytest.raises(ValueError, match=rf"limits\.{next(iter(values))}"):
        Limits(**values)
    assert json.dumps(vars(Limits()))
