"""Samples of the replay buffer: which reward, which next observation, which discount."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.data.replay_buffer import ReplayBuffer

CLOSED = "time"


def piece(number: int, first: int, rewards: list[float], terminal: bool) -> Batch:
    """An episode whose t-th observation is first + t, in both an image and a state."""
    n = len(rewards)
    time = first + torch.arange(n)
    last = torch.arange(n) == n - 1
    return Batch(
        **{"obs.state": time[:, None].float(), "obs.image": time[:, None, None, None].expand(n, 2, 2, 3).byte()},
        action=time[:, None, None].float(),
        reward=torch.tensor(rewards),
        episode=torch.full((n,), number),
        is_last=last,
        is_terminal=last & terminal,
    )


def final(number: int, observation: int) -> Batch:
    """The final observation of an episode."""
    return Batch(
        **{"obs.state": torch.tensor([[float(observation)]])},
        **{"obs.image": torch.full((1, 2, 2, 3), observation, dtype=torch.uint8)},
        episode=torch.tensor([number]),
    )


def nothing() -> Batch:
    return Batch(episode=torch.zeros(0, dtype=torch.long))


def table(replay: ReplayBuffer, draws: int = 400) -> dict[float, tuple[float, float, float]]:
    """For every action that is drawn: its reward, discount and following state; the same each time it is drawn."""
    batch = replay.sample(1, derive_rng(0, "test"))
    out: dict[float, tuple[float, float, float]] = {}
    for _ in range(draws // replay.batch_size):
        for i, action in enumerate(batch["action"].flatten().tolist()):
            assert batch["obs.state"][0, i].item() == action
            assert batch["obs.image"][0, i].unique().tolist() == [action]
            assert batch["next.image"][0, i].unique().tolist() == [batch["next.state"][0, i].item()]
            row = tuple(batch[name][0, i].item() for name in ("reward", "discount", "next.state"))
            assert out.setdefault(action, row) == row
    return out


REWARDS = [1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize(
    "terminal, expected",
    [
        # discount 1/2, three steps. 1 + 2/2 + 4/4 and 1/8 of what follows state 3, and so on. The last three reach the
        # end: after a terminal nothing counts
        (True, {0: (3, 1 / 8, 3), 1: (6, 1 / 8, 4), 2: (12, 0, None), 3: (16, 0, None), 4: (16, 0, None)}),
        # after a time limit state 5 does, discounted by as many steps as were left
        (False, {0: (3, 1 / 8, 3), 1: (6, 1 / 8, 4), 2: (12, 1 / 8, 5), 3: (16, 1 / 4, 5), 4: (16, 1 / 2, 5)}),
    ],
)
def test_three_steps_of_an_episode_of_five(terminal, expected):
    replay = ReplayBuffer(capacity=20, batch_size=400, gamma=0.5, n_steps=3)
    replay.add(piece(0, 0, REWARDS, terminal), nothing() if terminal else final(0, 5))
    replay.add(piece(7, 10, [100.0, 100.0], True), nothing())  # another episode follows at once
    drawn = table(replay)
    assert drawn.keys() == {0, 1, 2, 3, 4, 10, 11}
    for action, (reward, discount, following) in expected.items():
        assert drawn[action][:2] == (reward, discount)
        if following is not None:
            assert drawn[action][2] == following


def test_pieces_of_one_episode_meet_at_the_cut():
    """The observation at the cut is kept once more, and the first piece goes on through it."""
    replay = ReplayBuffer(capacity=20, batch_size=400, gamma=0.5)
    replay.add(piece(0, 0, [1.0, 2.0], False), final(0, 2))
    replay.add(piece(0, 2, [4.0], False), final(0, 3))
    assert table(replay) == {0: (1, 0.5, 1), 1: (2, 0.5, 2), 2: (4, 0.5, 3)}
    assert replay.storage.size == 5 and replay.num_transitions == 3


def test_the_oldest_rows_are_overwritten_and_nothing_is_mixed():
    replay = ReplayBuffer(capacity=7, batch_size=400, gamma=0.5, n_steps=2)
    for episode in range(5):
        replay.add(piece(episode, 10 * episode, [1.0, 2.0, 4.0], False), final(episode, 10 * episode + 3))
    # four rows each: the last episode whole, and of the one before it the last two decisions with what followed them
    drawn = table(replay)
    assert drawn == {
        31: (4, 0.25, 33),
        32: (4, 0.5, 33),
        40: (2, 0.25, 42),
        41: (4, 0.25, 43),
        42: (4, 0.5, 43),
    }
    images = replay.storage.columns["obs.image"]
    assert images.dtype == torch.uint8 and len(images) == 7  # an image takes its bytes once
    assert replay.storage.bytes == 7 * (12 + 4 + 4 + 4 + 1)


def test_more_than_fits_leaves_the_newest():
    replay = ReplayBuffer(capacity=3, batch_size=400, gamma=0.5)
    replay.add(piece(0, 0, REWARDS, True), nothing())
    assert table(replay).keys() == {2, 3, 4}


def test_every_decision_is_as_likely():
    replay = ReplayBuffer(capacity=100, batch_size=40_000, gamma=0.5)
    replay.add(piece(0, 0, [0.0] * 4, False), final(0, 4))
    counts = torch.bincount(replay.sample(1, derive_rng(1))["action"].flatten().long(), minlength=4)
    assert (counts - 10_000).abs().max() < 4 * (40_000 * 0.25 * 0.75) ** 0.5  # four standard deviations


def test_what_was_saved_draws_the_same():
    replay = ReplayBuffer(capacity=7, batch_size=8, gamma=0.5)
    for episode in range(3):
        replay.add(piece(episode, 10 * episode, [1.0, 2.0], False), final(episode, 10 * episode + 2))
    other = ReplayBuffer(capacity=7, batch_size=8, gamma=0.5)
    other.load_state_dict(replay.state_dict())
    for each in (replay, other):  # and goes on the same
        each.add(piece(9, 90, [1.0], True), nothing())
    assert_close(dict(replay.sample(2, derive_rng(3))), dict(other.sample(2, derive_rng(3))), rtol=0, atol=0)
    small = ReplayBuffer(capacity=100, batch_size=8, gamma=0.5)
    small.add(piece(0, 0, [1.0], True), nothing())
    assert len(small.state_dict()["storage"]["columns"]["reward"]) == 1  # not its capacity


def test_refusals():
    with pytest.raises(ValueError, match=r"data\.replay\.capacity"):
        ReplayBuffer(capacity=0)
    with pytest.raises(ValueError, match="neither terminated nor have a final observation"):
        ReplayBuffer(capacity=9).add(piece(0, 0, [1.0], False), nothing())
    replay = ReplayBuffer(capacity=9)
    replay.add(piece(0, 0, [1.0], True), nothing())
    with pytest.raises(ValueError, match=r"data\.replay\.capacity is 5"):
        ReplayBuffer(capacity=5).load_state_dict(replay.state_dict())
    with pytest.raises(ValueError, match=r"replay buffer column 'action'"):
        replay.add(piece(0, 0, [1.0], True).with_columns(action=torch.zeros(1, 1, 2)), nothing())
