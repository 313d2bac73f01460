"""Worker processes: results, errors, time limits, deaths, threads and forks."""

import functools
import operator
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mmrl.rewards.worker import CallRaised, CallTimedOut, WorkerDied, WorkerPool


def load_divide():
    return operator.truediv


def load_sleep():
    return time.sleep


def load_getpid():
    return os.getpid


def load_exit():
    return os._exit


def load_system_exit():
    return sys.exit


def load_spin():
    return spin


def load_kill():
    return lambda number: os.kill(os.getpid(), number)


def load_lambda():
    return lambda: lambda: 0  # the result cannot be pickled


def load_child():
    return start_child


def load_daemon():
    return start_daemon


def load_thread():
    return start_thread


def load_print():
    return lambda text: os.write(1, text.encode())


def load_nothing():
    raise FileNotFoundError("rewards.py")


def load_path():
    return lambda: sys.path


def load_length():
    return len


def load_power(exponent):
    return functools.partial(pow, exp=exponent)


def spin() -> int:
    """Hold the interpreter lock in C for minutes: no signal handler and no thread of Python runs meanwhile."""
    return len(str(7 ** (10**8)))


def start_daemon():
    """Start a process in a session of its own, whose parent ends."""
    program = "import os; print(os.getpid(), flush=True); os.close(1); import time; time.sleep(60)"
    started = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {program!r}], start_new_session=True)"
    return int(
        subprocess.run([sys.executable, "-c", started], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    )


def start_thread():
    threading.Thread(target=time.sleep, args=(60,)).start()
    return os.getpid()


def start_child() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(process: int) -> bool:
    end = time.monotonic() + 60
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(process)


@pytest.fixture
def make():
    pools = []

    def make_pool(*args, **kwargs) -> WorkerPool:
        pools.append(WorkerPool(*args, **kwargs))
        return pools[-1]

    yield make_pool
    for pool in pools:
        pool.close()


def test_the_function_is_called_in_one_other_process(make):
    pool = make(load_getpid)
    assert pool.call() == pool.call() != os.getpid()


def test_load_can_have_arguments(make):
    assert make(functools.partial(load_power, 3)).call(2) == 8


def test_the_worker_has_the_path_of_its_parent(make):
    assert make(load_path).call() == sys.path


def test_an_exception_has_its_kind_text_and_traceback_and_the_worker_stays(make):
    pool = make(load_divide)
    with pytest.raises(CallRaised, match="ZeroDivisionError: division by zero") as error:
        pool.call(1, 0)
    assert error.value.kind == "ZeroDivisionError" and "operator" not in error.value.text
    assert "Traceback" in error.value.traceback
    assert pool.call(1, 2) == 0.5
    assert pickle.loads(pickle.dumps(error.value)).kind == "ZeroDivisionError"


@pytest.mark.parametrize(("load", "kind"), [(load_system_exit, "SystemExit"), (load_lambda, "AttributeError|Pickling")])
def test_an_exit_and_a_result_that_cannot_be_sent_are_exceptions_of_the_call(make, load, kind):
    with pytest.raises(CallRaised, match=kind):
        make(load).call()


@pytest.mark.parametrize("load", [load_sleep, load_spin], ids=["sleeps", "hangs in C"])
def test_a_call_that_hangs_is_killed_at_its_limit_and_the_next_one_works(make, load):
    pool = make(load, timeout_s=0.5)
    pool.start()
    before = time.monotonic()
    with pytest.raises(CallTimedOut, match=r"a call took longer than 0.5 s"):
        pool.call(*([60] if load is load_sleep else []))
    assert time.monotonic() - before < 30
    if load is load_sleep:
        assert pool.call(0) is None


@pytest.mark.parametrize(
    ("load", "argument", "message"),
    [
        (load_exit, 7, "exit status 7"),
        (load_kill, signal.SIGSEGV, "killed by SIGSEGV"),
        (load_kill, signal.SIGKILL, "SIGKILL often means that memory ran out"),
    ],
)
def test_a_process_that_ends_during_a_call_is_an_error_of_that_call(make, load, argument, message):
    pool = make(load)
    for _ in range(2):  # the next call has another process
        with pytest.raises(WorkerDied, match=message):
            pool.call(argument)


def test_an_error_of_load_is_raised_by_start_and_by_each_call(make):
    pool = make(load_nothing)
    with pytest.raises(CallRaised, match=r"FileNotFoundError: rewards\.py"):
        pool.start()
    with pytest.raises(CallRaised, match="FileNotFoundError"):
        pool.call()


def test_what_a_call_started_is_killed_with_it(make):
    pool = make(load_child)
    child = pool.call()
    assert is_running(child)
    pool.close()
    assert wait_until_gone(child)


@pytest.mark.parametrize("load", [load_child, load_daemon])
def test_what_a_call_started_ends_with_a_trainer_that_was_killed(load):
    program = (
        "import os, signal\nfrom tests.rewards.test_worker import *\n"
        f"print(WorkerPool({load.__name__}).call(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL and wait_until_gone(int(ran.stdout))


def test_a_daemon_of_a_call_ends_with_the_pool(make):
    pool = make(load_daemon)
    daemon = pool.call()
    assert is_running(daemon) and os.getsid(daemon) != os.getsid(0)
    pool.close()
    assert wait_until_gone(daemon)


@pytest.mark.parametrize("ending", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(3)"])
def test_a_thread_of_a_call_does_not_keep_the_worker_alive(ending):
    program = (
        "import os, signal\nfrom tests.rewards.test_worker import *\npool = WorkerPool(load_thread)\n"
        f"print(pool.call(), flush=True)\n{ending}"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode in (3, -signal.SIGKILL) and wait_until_gone(int(ran.stdout))


def test_what_a_call_prints_is_escaped_and_bounded(make, capsys):
    pool = make(load_print)
    pool.call("a line\n\x1b[2J\x07")
    for _ in range(300):
        pool.call("x" * 1000)
    deadline, text = time.monotonic() + 60, ""
    while "not shown" not in text and time.monotonic() < deadline:
        text += capsys.readouterr().err
        time.sleep(0.05)
    assert text.startswith("a line\n\\x1b[2J\\x07x") and 99_000 < text.count("x") < 100_100
    assert text.endswith("what it prints from now on is not shown\n")


def test_many_calls_in_several_processes_keep_their_order_and_their_errors(make):
    results = make(load_divide, processes=2).call_all([(n, n % 10) for n in range(200)])
    assert [type(result) for result in results[::10]] == [CallRaised] * 20
    assert results[7] == 1.0 and results[15] == 3.0


def test_threads_share_the_workers(make):
    pool = make(load_divide, processes=2)
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(lambda n: pool.call(n, 2), range(400))) == [n / 2 for n in range(400)]


def test_large_arguments_and_results_pass(make):
    assert make(load_length).call(b"x" * 50_000_000) == 50_000_000


def test_a_fork_and_a_copy_have_workers_of_their_own(make):
    pool = make(load_getpid)
    own = pool.call()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(pool.call()).encode())
        pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    copy = pickle.loads(pickle.dumps(pool))
    assert len({own, int(os.read(read, 32)), copy.call()}) == 3
    copy.close()
    assert pool.call() == own


def test_workers_end_with_a_parent_that_was_killed():
    program = (
        "import os, signal\nfrom tests.rewards.test_worker import *\npool = WorkerPool(load_getpid)\n"
        "print(pool.call(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL and wait_until_gone(int(ran.stdout))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"processes": 0}, "processes must be at least 1, got 0"), ({"timeout_s": 0}, "timeout_s must be > 0")],
)
def test_numbers_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WorkerPool(load_getpid, **arguments)


def test_a_worker_that_is_stopped_is_a_timeout_and_the_next_call_has_another():
    pool = WorkerPool(load_kill, processes=1, timeout_s=1.0)
    assert pool.call(0) is None
    with pytest.raises(CallTimedOut, match="took longer than 1 s"):
        pool.call(signal.SIGSTOP)
    assert pool.call(0) is None
    pool.close()


def test_a_worker_that_is_stopped_and_goes_on_answers():
    pool = WorkerPool(load_sleep, processes=1, timeout_s=30.0)
    pool.call(0)
    worker = pool._idle.get()
    pool._idle.put(worker)
    threading.Timer(0.3, os.kill, (worker.process.pid, signal.SIGCONT)).start()
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert pool.call(0.1) is None and pool._idle.get() is worker
    pool._idle.put(worker)
    pool.close()


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_jumps_changes_no_limit(jump, monkeypatch):
    pool, clock = WorkerPool(load_sleep, processes=1, timeout_s=1.0), time.time
    pool.call(0)
    threading.Timer(0.2, monkeypatch.setattr, (time, "time", lambda: clock() + jump)).start()
    assert pool.call(0.3) is None
    with pytest.raises(CallTimedOut):
        pool.call(30)
    pool.close()


def test_an_open_pool_ends_with_its_program():
    program = (
        "import builtins\nfrom tests.rewards.test_worker import *\n"
        "builtins.pool = WorkerPool(load_getpid)\nprint(builtins.pool.call())"  # one of the last objects that go
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stderr == "" and wait_until_gone(int(ran.stdout))
