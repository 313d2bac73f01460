"""Sequences of the replay buffer: they stay within an episode, and every entry stands where it belongs."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.data.sequence_replay import SequenceReplayBuffer


def rows(lengths: list[int], terminal: list[bool], first: int = 0) -> tuple[Batch, Batch]:
    """Episodes whose observation is 100 * episode + step, action and reward the same number plus 0.25 and 0.5."""
    numbers = [[100.0 * (first + e + 1) + s for s in range(n)] for e, n in enumerate(lengths)]
    observation = torch.tensor([each for part in numbers for each in part])
    episode = torch.tensor([e for e, n in enumerate(lengths) for _ in range(n)])
    last = torch.cat([episode[1:] != episode[:-1], torch.tensor([True])])
    batch = Batch(
        **{"obs.state": observation[:, None], "obs.memory": torch.ones(len(episode), 3)},
        action=(observation + 0.25)[:, None, None],
        reward=observation + 0.5,
        episode=episode,
        is_last=last,
        is_terminal=last & torch.tensor(terminal)[episode],
    )
    open_ends = [e for e, over in enumerate(terminal) if not over]
    after = torch.tensor([[100.0 * (first + e + 1) + lengths[e]] for e in open_ends]).view(-1, 1)
    final = Batch(
        **{"obs.state": after, "obs.memory": torch.ones(len(after), 3)},
        episode=torch.tensor(open_ends, dtype=torch.long),
    )
    return batch, final


def samples(buffer: SequenceReplayBuffer, seed: int = 0) -> dict[str, torch.Tensor]:
    batch = buffer.sample(3, np.random.default_rng(seed))
    return {name: column.flatten(0, 1) for name, column in batch.items()}


def check(batch: dict[str, torch.Tensor], ends: dict[int, tuple[int, bool]]) -> None:
    """Every sequence by the numbers that its observations have. ends: length of each episode, whether it terminated."""
    for row in range(len(batch["observed"])):
        state, inside, observed = batch["obs.state"][row, :, 0], batch["action_mask"][row], batch["observed"][row]
        number = state[0].item()
        episode, step = int(number // 100), int(number % 100)
        length, over = ends[episode]
        for t in range(len(state)):
            assert inside[t].item() == (step + t <= length)
            assert observed[t].item() == (step + t < length + (not over))
            shown = number + t if observed[t] else 0.0
            before = (number + t - 1) if inside[t] and t else None
            assert state[t].item() == shown
            assert batch["previous_action"][row, t, 0].item() == (0 if before is None else before + 0.25)
            assert batch["previous_reward"][row, t].item() == (0 if before is None else before + 0.5)
            gone = inside[t].item() and t > 0 and over and step + t == length
            assert batch["continues"][row, t].item() == (not gone)


@pytest.mark.parametrize("chunk", [2, 4, 9])
def test_sequences_stay_within_an_episode(chunk):
    buffer = SequenceReplayBuffer(capacity=100, batch_size=40, chunk=chunk)
    buffer.add(*rows([6, 3, 8], [False, True, False]))
    buffer.add(*rows([1, 5], [True, False], first=3))
    batch = samples(buffer)
    check(batch, {1: (6, False), 2: (3, True), 3: (8, False), 4: (1, True), 5: (5, False)})
    assert set((batch["obs.state"][:, 0, 0] // 100).tolist()) == {1, 2, 3, 4, 5}
    assert "obs.memory" not in batch
    assert set(batch) == buffer.writes() | {"obs.state"}


def test_a_full_buffer_forgets_the_oldest_rows():
    """14 rows: two of the six observations and final of the first episode are overwritten by the third."""
    buffer = SequenceReplayBuffer(capacity=14, batch_size=60, chunk=4)
    buffer.add(*rows([5, 3], [False, False]))
    buffer.add(*rows([5], [False], first=2))
    assert buffer.storage.size == 14 and buffer.storage.head == 2
    batch = samples(buffer)
    check(batch, {1: (5, False), 2: (3, False), 3: (5, False)})
    starts = batch["obs.state"][:, 0, 0]
    assert starts[starts < 200].min().item() == 102


def test_every_decision_and_its_outcome_is_drawn():
    """Episode of 6 decisions, sequences of 3: starts 0 to 4, so that reward 5, of the last decision, is there too."""
    buffer = SequenceReplayBuffer(capacity=100, batch_size=100, chunk=3)
    buffer.add(*rows([6], [False]))
    batch = samples(buffer)
    assert set(batch["obs.state"][:, 0, 0].tolist()) == {100.0, 101.0, 102.0, 103.0, 104.0}
    assert set(batch["previous_reward"][:, 1:].flatten().tolist()) == {100.5 + step for step in range(6)}


def test_a_seed_is_a_sample_and_a_resumed_buffer_goes_on():
    buffer = SequenceReplayBuffer(capacity=14, batch_size=5, chunk=4)
    buffer.add(*rows([5, 3], [False, True]))
    other = SequenceReplayBuffer(capacity=14, batch_size=5, chunk=4)
    other.load_state_dict(buffer.state_dict())
    for each in (buffer, other):
        each.add(*rows([4], [False], first=2))
    assert_close(samples(buffer, 3), samples(other, 3))
    assert (samples(buffer, 3)["obs.state"] != samples(buffer, 4)["obs.state"]).any()


def test_a_sequence_needs_two_observations():
    with pytest.raises(ValueError, match=r"data\.replay\.chunk must be at least 2"):
        SequenceReplayBuffer(chunk=1)
