"""Rows of the processes of a sequence group: of other widths, with other optional columns, and none at all."""

import torch

from mmrl.core.batch import Batch, Ragged
from mmrl.distributed.sequence_group import ALONE, SequenceGroup
from mmrl.policies.base import Policy
from mmrl.transforms.rows.shared_rows import SharedRows
from tests.distributed.test_sequence_group import join_processes, run_group


class Reader(Policy):
    """Only pads observations."""

    pads_left = True
    act = encode = forward = save_pretrained = None


def gather(rank, ranks, port):
    join_processes(rank, ranks, port)
    rows, choices = (2, 3) if rank else (1, 2)
    ids = torch.full((rows, choices), rank + 1)
    batch = Batch(
        {"obs.input_ids": ids, "obs.attention_mask": torch.ones_like(ids), "action": ids},
        action_mask=torch.ones(rows, choices, dtype=torch.bool),
        prompt_id=torch.zeros(rows, dtype=torch.long),
        episode=torch.arange(rows),
    )
    if rank:  # the rows of the other process were drawn from the whole vocabulary
        batch["support_sizes"] = torch.ones(rows, choices, dtype=torch.long)
        batch["packed_support_ids"] = Ragged(torch.arange(6), torch.tensor([3, 3]))
    whole, local = SharedRows(SequenceGroup(rank, ranks), Reader()).gather(batch)
    assert whole["action"].tolist() == [[1, 1, 0], [2, 2, 2], [2, 2, 2]]
    assert whole["obs.attention_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert whole["prompt_id"].tolist() == [0, 1, 1] and whole["episode"].tolist() == [0, 1, 2]
    assert whole["support_sizes"].tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert whole["packed_support_ids"].lengths.tolist() == [0, 3, 3]
    assert local == (slice(1, 3) if rank else slice(0, 1))
    empty, nothing = SharedRows(SequenceGroup(rank, ranks), Reader()).gather(batch.select(torch.arange(rank)))
    assert empty.rows == 1 and nothing == (slice(0, 1) if rank else slice(0, 0))
    torch.distributed.destroy_process_group()


def test_a_group_has_the_rows_of_all_its_processes():
    run_group(gather, 2)


def test_one_process_has_its_own_rows():
    batch = Batch(action=torch.arange(3))
    assert SharedRows(ALONE).gather(batch) == (batch, slice(0, 3))
