"""The two buffers of HIL-SERL: which transitions are the human's, and the mix of a batch."""

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.methods.control.hil_serl.buffers import HumanReplayBuffer, select_interventions
from tests.data.test_replay_buffer import final, nothing, piece


def segment(number: int, first: int, human: list[int], terminal: bool) -> Batch:
    """An episode whose t-th action and observation are first + t; in the steps with a 1 the human acts."""
    rows = piece(number, first, [float(first + t) for t in range(len(human))], terminal)
    columns = {name: column for name, column in rows.items() if name != "obs.image"}
    return Batch(columns, intervention=torch.tensor(human, dtype=torch.bool), group=rows["episode"])


def observe(number: int, observation: int) -> Batch:
    return Batch({name: column for name, column in final(number, observation).items() if name != "obs.image"})


def join(parts: list[Batch]) -> Batch:
    return Batch({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def transitions(replay: ReplayBuffer) -> dict[float, tuple[float, float]]:
    """By action: discount and next observation of every transition."""
    rows = torch.arange(replay.storage.size)
    rows = rows[replay.storage.columns["end"][: replay.storage.size] != 3]
    read = replay.read(rows)
    return {a: (d, s) for a, d, s in zip(*(read[n].flatten().tolist() for n in ("action", "discount", "next.state")))}


def test_runs_of_the_human_become_episodes_of_their_own():
    """Episode 0: steps 0 to 5, the human in 1, 2 and 5, cut by time before observation 6. Episode 1: steps 10 to 12,
    the human in 10 and 12, terminal. With gamma 0.5 every transition has the next observation of the episode: the run
    of 1 and 2 is closed by observation 3, that of 5 by 6, that of 10 by 11; only 12 has discount 0."""
    rows = join([segment(0, 0, [0, 1, 1, 0, 0, 1], False), segment(1, 10, [1, 0, 1], True)])
    replay = HumanReplayBuffer(capacity=100, batch_size=4, gamma=0.5)
    replay.add(rows, observe(0, 6))
    human = transitions(replay.human)
    assert {a: row for a, row in human.items() if a != 12} == {1: (0.5, 2), 2: (0.5, 3), 5: (0.5, 6), 10: (0.5, 11)}
    assert human[12][0] == 0 and replay.human.num_transitions == 5
    assert sorted(transitions(replay)) == [0, 1, 2, 3, 4, 5, 10, 11, 12]


def test_two_runs_meet_at_the_border_of_episodes():
    """The human acts in the last step of one episode and the first of the next: two runs, not one."""
    rows = join([segment(0, 0, [0, 1], False), segment(1, 10, [1, 1], True)])
    selected, following = select_interventions(rows, observe(0, 2))
    assert selected["episode"].tolist() == [0, 1, 1] and selected["is_last"].tolist() == [True, False, True]
    assert following["episode"].tolist() == [0] and following["obs.state"].tolist() == [[2.0]]


def test_without_a_human_the_buffer_is_an_ordinary_one():
    rows = segment(0, 0, [0, 0, 0], True)
    mixed, plain = HumanReplayBuffer(100, 4), ReplayBuffer(100, 4)
    mixed.add(rows, nothing())
    plain.add(rows, nothing())
    one, other = (replay.sample(3, derive_rng(0, "test")) for replay in (mixed, plain))
    assert mixed.human.num_transitions == 0 and one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("share, count", [(0.5, 4), (0.25, 2), (0, 0), (1, 8)])
def test_a_share_of_each_batch_is_the_humans(share, count):
    """Demonstrations have actions from 100 on, and are in the human's buffer alone."""
    replay = HumanReplayBuffer(100, 8, human_share=share)
    replay.human.add(*select_interventions(segment(0, 100, [1, 1, 1], True), nothing()))
    replay.add(segment(1, 0, [0, 0, 0, 0], True), nothing())
    batch = replay.sample(50, derive_rng(0, "test"))
    action = batch["action"][:, :, 0, 0]
    assert action.shape == (50, 8) and ((action >= 100).sum(1) == count).all()
    assert set(action.flatten().tolist()) <= {0, 1, 2, 3, 100, 101, 102}


def test_a_saved_buffer_draws_the_same():
    replay, again = HumanReplayBuffer(100, 8), HumanReplayBuffer(100, 8)
    replay.add(segment(0, 0, [0, 1, 1, 0], True), nothing())
    again.load_state_dict(replay.state_dict())
    one, other = (each.sample(2, derive_rng(0, "test")) for each in (replay, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert replay.metrics()["replay/human_rows"] == 3  # 1, 2 and the observation after them


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"data\.replay\.human_share must be in \[0, 1\]"):
        HumanReplayBuffer(human_share=1.5)
    with pytest.raises(ValueError, match=r"data\.replay\.human_capacity must be at least 1"):
        HumanReplayBuffer(human_capacity=0)
