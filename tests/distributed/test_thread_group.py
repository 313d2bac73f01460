"""A thread of each process has collectives of its own, beside those of the main threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from mmrl.distributed import parallel
from mmrl.distributed.thread_group import RankFailure, ThreadGroup, current_group, refuse_thread
from tests.engines.vllm.test_several_processes import run_in_ranks

SECONDS = timedelta(seconds=60)


def add_in_both(rank: int, folder: Path):
    """Threads and main threads make collectives at the same time, in another order on each process."""
    group = ThreadGroup(SECONDS, threading.Event())

    def beside():
        with group.use():
            sums = []
            for i in range(20):
                time.sleep(0.002 * ((i + rank) % 2))
                sums.append([parallel.gather([rank, i]), parallel.total(torch.tensor([i + rank, 1])).tolist()])
            return sums

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(beside)
        mains = []
        for i in range(20):
            time.sleep(0.002 * ((i + rank + 1) % 2))
            mains.append([parallel.gather([-rank, i]), parallel.total(torch.tensor([i - rank, 5])).tolist()])
    group.close()
    return [result.result(), mains]


def test_two_threads_of_two_processes_do_not_meet(tmp_path):
    first, second = run_in_ranks(add_in_both, tmp_path)
    assert first == second
    assert first[0] == [[[0, i, 1, i], [2 * i + 1, 2]] for i in range(20)]
    assert first[1] == [[[0, i, -1, i], [2 * i - 1, 10]] for i in range(20)]


def fail_on_one(rank: int, folder: Path):
    """Process 1 fails between two messages, then before the last one; at last the run ends while 1 waits."""
    stopped = threading.Event()
    group, texts = ThreadGroup(SECONDS, stopped), []
    for failing in (0, 1):
        try:
            with group.use():
                if rank == 1 and failing == 0:
                    raise OSError("on fire")
                parallel.gather([rank])
                if rank == 1:
                    raise OSError("at the end")
        except OSError as error:
            texts.append(f"local: {error}")
        except RankFailure as error:
            texts.append(str(error))
        assert current_group() is None

    def wait():
        with group.use():
            return parallel.gather([rank])

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait) if rank else None
        time.sleep(0.3)
        stopped.set()
        if waits is not None:
            texts.append(type(waits.exception()).__name__)
    talk = parallel.gather([rank])  # over the group of the main threads; the group is closed after process 1 has raised
    group.close()
    return [texts, talk]


def test_a_failure_is_told_and_an_end_is_noticed(tmp_path):
    (first, talk), (second, other) = run_in_ranks(fail_on_one, tmp_path)
    prefix = "process 1 failed while it sampled beside the learner: OSError: "
    assert first == [f"{prefix}on fire", f"{prefix}at the end"]
    assert second == ["local: on fire", "local: at the end", "InterruptedError"]
    assert talk == other == [0, 1]


def use_learners_weights(rank: int, folder: Path):
    group = ThreadGroup(SECONDS, threading.Event())
    refuse_thread("gathering")  # outside of the context it is allowed
    refused = pytest.raises(RuntimeError, match=r"gathering is a collective of the learner's.*data\.staleness=0")
    with refused, group.use():
        refuse_thread("gathering")
    dist.barrier()
    return "refused"


def test_collectives_of_the_learner_are_refused_in_the_thread(tmp_path):
    assert run_in_ranks(use_learners_weights, tmp_path) == ["refused", "refused"]
