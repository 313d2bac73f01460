"""Processes that divide a sequence: which tokens each has, exchanges by hand, and rows of different widths."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.distributed.ddp import DDP
from mmrl.distributed.fsdp2 import FSDP2
from mmrl.distributed.sequence_group import (
    ALONE,
    SequenceGroup,
    build_sequence_group,
    get_dividing_group,
)
from tests.runs.processes import start
from tests.tiny_recipes import free_port


def run_group(target, ranks):
    """Call a function in several processes with gloo."""
    port = free_port()
    processes = [start(target, rank, ranks, port) for rank in range(ranks)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * ranks


def join_processes(rank, ranks, port):
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    torch.set_num_threads(1)


def exchange(rank, ranks, port):
    join_processes(rank, ranks, port)
    group = build_sequence_group(2, torch.device("cpu"))
    assert (group.rank, group.size) == (rank % 2, 2)
    first = rank - group.rank  # neighbours are a group
    parts = torch.tensor([[10.0 * rank], [10.0 * rank + 1]], requires_grad=True)
    received = group.exchange(parts)
    assert_close(received, torch.tensor([[10.0 * first + group.rank], [10.0 * (first + 1) + group.rank]]))
    # the gradient of what was sent is that of the process that received it
    received.backward(torch.full((2, 1), float(group.rank)))
    assert_close(parts.grad, torch.tensor([[0.0], [1.0]]))

    # two sequences of four tokens, of which each process has two
    tokens = torch.arange(8.0).view(2, 4)
    local = (group.take(tokens) * 1).requires_grad_()
    joined = group.join(local.flatten(), 2)
    assert_close(joined, tokens.flatten())
    # summed over the processes: 1 and 2 of the two, times the number of the token
    (joined * tokens.flatten() * (1 + group.rank)).sum().backward()
    assert_close(local.grad, 3 * group.take(tokens))
    assert group.agree(True) and not group.agree(rank == 0)
    torch.distributed.destroy_process_group()


def test_processes_exchange_tokens_by_hand():
    run_group(exchange, 4)


def test_one_process_changes_nothing():
    tokens = torch.arange(3.0)
    assert ALONE.take(tokens) is tokens and ALONE.join(tokens, 1) is tokens
    assert build_sequence_group(1, torch.device("cpu")) is ALONE
    with pytest.raises(ValueError, match=r"sequence_parallel=2 does not divide the 1 processes"):
        build_sequence_group(2, torch.device("cpu"))


def test_a_group_divides_inside_the_context_alone():
    group = SequenceGroup(1, 2)
    with group.divide():
        assert get_dividing_group() is group
        with ALONE.divide():
            assert get_dividing_group() is ALONE
    assert get_dividing_group() is ALONE


@pytest.mark.parametrize("strategy", [DDP, FSDP2])
def test_a_group_has_at_least_one_process(strategy):
    with pytest.raises(ValueError, match=r"trainer\.strategy\.sequence_parallel must be at least 1, got 0"):
        strategy(sequence_parallel=0)
    assert strategy(sequence_parallel=2).sequence_group is ALONE  # until there are processes
