"""Processes that share a replay buffer hold the rows, and draw the samples, of one process with one buffer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.data import shared_replay_buffer
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.data.shared_replay_buffer import SharedReplayBuffer

CPU = torch.device("cpu")


class Processes:
    """Stands in for `mmrl.distributed.parallel`: each thread is a process."""

    def __init__(self, size: int):
        self.size, self.local, self.parts = size, threading.local(), [None] * size
        self.barrier = threading.Barrier(size)

    def rank_and_size(self):
        return self.local.rank, self.size

    def gather(self, items):
        self.parts[self.local.rank] = items
        self.barrier.wait()
        found = [item for part in self.parts for item in part]
        self.barrier.wait()
        return found

    def collect_on_first(self, value, device):
        found = self.gather([value])
        return found if self.local.rank == 0 else None

    def run(self, function, *arguments):
        """Call a function in every process, each with its own part of the arguments."""

        def start(rank):
            self.local.rank = rank
            return function(*(part[rank] for part in arguments))

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(start, range(self.size)))


def segments(rng: np.random.Generator, count: int) -> list[tuple[int, Batch, Batch]]:
    """Segments of different lengths that terminate or are cut: the group, the rows and the final observation."""
    out = []
    for group in sorted(rng.choice(100, count, replace=False).tolist()):
        n = int(rng.integers(1, 6))
        last = torch.arange(n) == n - 1
        terminal = bool(rng.integers(2))
        rows = Batch(
            **{"obs.state": torch.from_numpy(rng.normal(size=(n, 2)))},
            action=torch.from_numpy(rng.normal(size=(n, 1, 1))),
            reward=torch.from_numpy(rng.normal(size=n)),
            group=torch.full((n,), group),
            episode=torch.full((n,), group),
            is_last=last,
            is_terminal=last & terminal,
        )
        final = Batch(**{"obs.state": torch.from_numpy(rng.normal(size=(1, 2)))}, episode=torch.tensor([group]))
        out.append((group, rows, final.select(torch.zeros(int(not terminal), dtype=torch.long))))
    return out


def joined(parts: list[tuple[int, Batch, Batch]]) -> tuple[Batch, Batch]:
    """Rows and final observations of several segments."""
    if not parts:
        return Batch(), Batch(episode=torch.zeros(0, dtype=torch.long))
    _, rows, finals = zip(*parts)
    return tuple(Batch({name: torch.cat([each[name] for each in some]) for name in some[0]}) for some in (rows, finals))


def build(size: int, monkeypatch, **options) -> tuple[Processes, list[SharedReplayBuffer]]:
    processes = Processes(size)
    monkeypatch.setattr(shared_replay_buffer, "parallel", processes)
    options = {"capacity": 60, "batch_size": 7, "gamma": 0.5, "n_steps": 2, **options}
    return processes, processes.run(lambda _: SharedReplayBuffer(ReplayBuffer(**options), CPU), range(size))


def add(processes, shared, whole, rng, shares) -> None:
    """Add segments to the buffer of one process, and to those of several, by the share of each."""
    found = segments(rng, 8)
    owners = rng.choice(len(shares), len(found), p=shares)
    parts = [joined([each for each, owner in zip(found, owners) if owner == rank]) for rank in range(len(shares))]
    processes.run(lambda replay, part: replay.add(*part), shared, parts)
    whole.add(*joined(found))


def check_samples(processes, shared, whole, key) -> None:
    """Compare samples row by row."""
    expected = whole.sample(5, derive_rng(key))
    found = processes.run(lambda replay: replay.sample(5, derive_rng(key)), shared)
    for update in range(5):
        rows = {}
        for part in found:
            for row, place in enumerate(part["place"][update].tolist()):
                filled = part["action_mask"][update, row].any().item()
                assert filled == (place >= 0)
                if filled:
                    assert place not in rows
                    rows[place] = {name: part[name][update, row] for name in expected}
        assert sorted(rows) == list(range(whole.batch_size))
        for place, row in rows.items():
            one = {name: column[update, place] for name, column in expected.items()}
            if one["discount"] == 0:  # what comes after a terminal state may be anything
                row["next.state"] = one["next.state"]
            assert_close(row, one, rtol=0, atol=0)


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.9, 0.05, 0.05], [1.0, 0.0]], ids=str)
def test_samples_are_those_of_one_buffer(shares, monkeypatch):
    """Shares are unequal and change; some iterations leave a process without rows, and old rows are overwritten."""
    processes, shared = build(len(shares), monkeypatch)
    whole, rng = ReplayBuffer(60, 7, 0.5, 2), derive_rng("segments")
    for iteration in range(12):
        now = shares if iteration < 6 else shares[::-1]
        add(processes, shared, whole, rng, now)
        check_samples(processes, shared, whole, iteration)
    assert whole.storage.size == 60 < whole.num_transitions
    assert {replay.num_transitions for replay in shared} == {whole.num_transitions}
    assert shared[0].metrics() == pytest.approx(whole.metrics())
    assert shared[-1].storage.capacity <= 60
    if shares == [0.5, 0.5]:  # a process allocates its share and not the whole
        assert max(replay.storage.capacity for replay in shared) < 60


def test_more_rows_than_the_capacity_at_once(monkeypatch):
    processes, shared = build(2, monkeypatch, capacity=9)
    whole = ReplayBuffer(9, 7, 0.5, 2)
    for iteration in range(3):
        add(processes, shared, whole, derive_rng("many", iteration), [0.5, 0.5])
        check_samples(processes, shared, whole, iteration)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("iterations", [0, 1, 9])
def test_a_buffer_that_two_processes_saved_goes_on_in_any_number(iterations, size, monkeypatch):
    processes, shared = build(2, monkeypatch)
    whole, rng = ReplayBuffer(60, 7, 0.5, 2), derive_rng("saved")
    for _ in range(iterations):
        add(processes, shared, whole, rng, [0.7, 0.3])
    state, rest = processes.run(SharedReplayBuffer.state_dict, shared)
    assert not rest["storage"]["columns"]
    single = ReplayBuffer(60, 7, 0.5, 2)
    single.load_state_dict(state)
    assert_close(single.state_dict(), whole.state_dict(), rtol=0, atol=0)
    several, loaded = build(size, monkeypatch)
    several.run(lambda replay: replay.load_state_dict(state), loaded)
    if iterations:
        held = [int((replay.order.columns["number"][: replay.order.size] >= 0).sum()) for replay in loaded]
        assert sum(held) == whole.storage.size and all(held)
    for step in range(3):
        if iterations:
            check_samples(several, loaded, whole, step)
        add(several, loaded, whole, rng, [1 / size] * size)
    check_samples(several, loaded, whole, "after")


def test_one_process_saved_and_another_capacity_is_refused(monkeypatch):
    whole = ReplayBuffer(60, 7, 0.5, 2)
    whole.add(*joined(segments(derive_rng("one"), 8)))
    processes, shared = build(2, monkeypatch)
    processes.run(lambda replay: replay.load_state_dict(whole.state_dict()), shared)
    check_samples(processes, shared, whole, "one")
    processes, shared = build(2, monkeypatch, capacity=50)
    with pytest.raises(ValueError, match=r"data\.replay\.capacity is 50"):
        processes.run(lambda replay: replay.load_state_dict(whole.state_dict()), shared)
