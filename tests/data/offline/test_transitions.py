"""Recorded transitions in the replay buffer, against a table that is written down row by row; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mmrl.core.rng import derive_rng
from mmrl.data.offline.ends import check_ends
from mmrl.data.offline.transitions import fill_replay
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.hdf5.d4rl import D4RLDataset
from mmrl.datasets.transition_task import TransitionTask
from mmrl.policies.control.tanh_mean import TanhMeanPolicy
from tests.data.offline.recordings import arrays, write
from tests.datasets.episodes import episode
from tests.datasets.episodes import write as write_lerobot

LENGTHS, ENDS = [3, 4, 2, 3], ["done", "time", "time", "cut"]


def fill(path, **options) -> ReplayBuffer:
    dims = open_dataset(path).features["state"].shape[0]
    replay = ReplayBuffer(capacity=100, batch_size=200, **options)
    torch.manual_seed(0)
    fill_replay(replay, open_dataset(path), TanhMeanPolicy(dims, 2, hidden=[4]))
    return replay


def table(replay: ReplayBuffer) -> dict[int, tuple[float, float, float]]:
    """By the number of each row that is drawn: reward, discount and the number of its next observation."""
    batch = replay.sample(1, derive_rng(0, "test"))
    columns = (batch["reward"][0], batch["discount"][0], batch["next.state"][0, :, 0])
    rows = zip(batch["obs.state"][0, :, 0].int().tolist(), *(column.tolist() for column in columns))
    return {number: (reward, discount, following) for number, reward, discount, following in rows}


def brute_force(columns, n_steps: int, gamma: float, following=None) -> dict[int, tuple[float, float, float | None]]:
    """Every transition by a walk over its episode; without `next_observations` that before a cut is not known."""
    rows = len(columns["rewards"])
    out = {}
    for first in range(rows):
        reward, discount, row = 0.0, 1.0, first
        for _ in range(n_steps):
            reward += discount * columns["rewards"][row]
            discount *= gamma
            terminal, ends = columns["terminals"][row], columns["timeouts"][row] or row == rows - 1
            after = following[row] if following is not None else row + 1
            if following is None and not terminal and (columns["timeouts"][row + 1 : row + 2].any() or row + 2 == rows):
                ends = True  # the next row only gives its observation
            row += 1
            if terminal or ends:
                break
        if following is None and not columns["terminals"][first] and (columns["timeouts"][first] or first == rows - 1):
            continue  # what follows is not recorded
        out[first] = (reward, 0.0 if terminal else discount, None if terminal else float(after))
    return out


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("recorded", [False, True], ids=["without", "with_next_observations"])
def test_transitions_are_those_of_a_walk_over_the_file(tmp_path, n_steps, recorded):
    """Rows 0-2 terminate, 3-6 and 7-8 run out of time, 9-11 are cut off. Next observations are numbered 100 and up."""
    columns = arrays(LENGTHS, ENDS)
    following = None
    if recorded:
        following = np.arange(1, 13)
        following[[6, 8, 11]] = [106, 108, 111]
        after = np.zeros_like(columns["observations"])
        after[:, 0] = following
        columns["next_observations"] = after
    replay = fill(write(tmp_path / "log.hdf5", **columns), n_steps=n_steps, gamma=0.5)
    result, expected = table(replay), brute_force(columns, n_steps, 0.5, following)
    assert result.keys() == expected.keys() and replay.num_transitions == len(expected) == (12 if recorded else 9)
    for number, (reward, discount, after) in expected.items():
        assert result[number][:2] == (reward, discount), number
        assert after is None or result[number][2] == after, number


def test_actions_are_stored_in_the_units_of_the_policy(tmp_path):
    columns = arrays([4], ["done"])
    columns["actions"] = np.array([[-2, 10], [2, 20], [0, 15], [1, 10]], np.float32)
    path = write(tmp_path / "log.hdf5", **columns)
    sizes = TransitionTask(str(path)).sizes()
    assert (sizes["low"], sizes["high"], sizes["kind"]) == ([-2.0, 10.0], [2.0, 20.0], "gaussian")
    assert (sizes["actions"], sizes["observation_dims"]) == (2, 3)
    replay = ReplayBuffer(capacity=10)
    fill_replay(replay, open_dataset(path), TanhMeanPolicy(3, 2, low=sizes["low"], high=sizes["high"], hidden=[4]))
    expected = [[-1, -1], [1, 1], [0, 0], [0.5, -1]]
    assert replay.storage.columns["action"][:4, 0].tolist() == expected


def test_a_lerobot_recording_with_rewards(tmp_path):
    """The first episode terminates in its third step, the second is cut off: its last step has no next observation."""
    recorded = [episode(3, 0, True), episode(4, 1, False)]
    folder = write_lerobot(tmp_path / "log", recorded)
    replay = ReplayBuffer(capacity=20)
    policy = TanhMeanPolicy(5, 3, state="proprio", hidden=[4])
    fill_replay(replay, open_dataset(folder), policy)
    states = np.concatenate([one.observations["proprio"] for one in recorded])
    np.testing.assert_array_equal(replay.storage.columns["obs.state"][:7].numpy(), states)
    assert replay.storage.columns["reward"][:7].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert replay.storage.columns["end"][:7].tolist() == [0, 0, 2, 0, 0, 1, 3] and replay.num_transitions == 6


def test_actions_that_noise_changed_are_stored_as_they_were_played(tmp_path):
    """What followed is that of the noisy action; one beyond the box was stopped at its edge."""
    plain = episode(3, 0, True)
    noisy = plain.actions + np.array([[0.25, -0.5, 0.0], [0, 0, 0.125], [3, -3, 0]], np.float32)
    folder = write_lerobot(tmp_path / "log", [replace(plain, executed=noisy)])
    replay = ReplayBuffer(capacity=20)
    fill_replay(replay, open_dataset(folder), TanhMeanPolicy(5, 3, state="proprio", hidden=[4]))
    np.testing.assert_allclose(replay.storage.columns["action"][:3, 0], noisy.clip(-1, 1), atol=1e-6)


def test_states_are_normalised_by_those_of_the_data(tmp_path):
    columns = arrays([50, 50], ["done", "done"])
    policy = TanhMeanPolicy(3, 2, hidden=[4], normalize_observations=True)
    fill_replay(ReplayBuffer(capacity=200), open_dataset(write(tmp_path / "log.hdf5", **columns)), policy)
    policy.include_rows()
    np.testing.assert_allclose(policy.encoder.statistics.mean, columns["observations"].mean(0), atol=1e-4)
    np.testing.assert_allclose(policy.encoder.statistics.var, columns["observations"].var(0), rtol=1e-4)


BROKEN = {
    "no rewards": (dict(rewards=None), r"log\.hdf5 episode 0 \(rows 0 to 2\): it has no rewards"),
    "a wrong length": (dict(rewards=np.zeros(11)), r"log\.hdf5: rewards has shape \[11\], there are 12 actions"),
    "flags in two columns": (dict(terminals=np.zeros((12, 2))), r"terminals has shape \[12, 2\]"),
    "no ends": (dict(terminals=None, timeouts=None), "neither 'terminals' nor 'timeouts' is there"),
    "ends that are all false": (
        dict(terminals=np.zeros(12, bool), timeouts=np.zeros(12, bool)),
        "terminals and timeouts are false in all 12 rows",
    ),
    "a flag that is none": (
        dict(terminals=np.eye(1, 12, 4)[0] * 0.5),
        r"terminals is 0\.5 in row 4; it must be 0 or 1",
    ),
    "a small box": (
        dict(actions=np.full((12, 2), 3.0)),
        r"episode 0 .*action at control step 0 is 3, outside .*\[-1, 1\]",
    ),
    "numbered actions": (dict(actions=np.zeros((12, 2), int)), "actions are int64, numbered"),
    "another width": (dict(actions=np.zeros((12, 5))), r"actions have shape \[5\], the policy's \[2\]"),
}


@pytest.mark.parametrize("changes, message", BROKEN.values(), ids=BROKEN)
def test_what_is_refused(tmp_path, changes, message):
    path = write(tmp_path / "log.hdf5", **{**arrays(LENGTHS, ENDS), **changes})
    with pytest.raises(ValueError, match=message):
        fill(path)


@pytest.mark.parametrize(
    "name, word", [("rewards", "reward"), ("observations", "observation state"), ("actions", "action")]
)
def test_numbers_that_are_not_finite_are_refused_by_episode_and_row(tmp_path, name, word):
    columns = arrays(LENGTHS, ENDS)
    columns[name][5] = np.nan
    path = write(tmp_path / "log.hdf5", **columns)
    with pytest.raises(
        ValueError, match=rf"log\.hdf5 episode 1 \(rows 3 to 6\): {word} is not finite at control step 2"
    ):
        fill(path)
    if name == "actions":
        with pytest.raises(ValueError, match=r"episode 1 .*action is not finite at control step 2"):
            TransitionTask(str(path)).sizes()


def test_exchanged_ends_are_refused_by_episode_and_row(tmp_path):
    """A limit of 5 steps, and falls after 2 and 3; exchanged, the limit looks like a terminal state."""
    lengths, ends = [5, 2, 5, 3], ["time", "done", "time", "done"]
    columns = arrays(lengths, ends)
    fill(write(tmp_path / "log.hdf5", **columns))
    columns["terminals"], columns["timeouts"] = columns["timeouts"], columns["terminals"]
    path = write(tmp_path / "swapped.hdf5", **columns)
    with pytest.raises(
        ValueError, match=r"swapped\.hdf5: .*exchanged: a time limit ends episode 1 after row 1.*at row 4"
    ):
        fill(path)
    fill_replay(ReplayBuffer(100), open_dataset(path), TanhMeanPolicy(3, 2, hidden=[4]), checks_ends=False)


def test_ends_that_only_a_time_limit_has(tmp_path):
    path = tmp_path / "log.hdf5"
    with pytest.raises(ValueError, match="every one of 3 episodes, the first too, has a terminal state at row 6"):
        check_ends(path, [(7, "done")] * 3)
    for right in (
        [(7, "time")] * 3,
        [(7, "done"), (7, "done"), (4, "done")],
        [(1, "done")] * 9,
        [(7, "done"), (5, "time")],
    ):
        check_ends(path, right)


def test_a_buffer_that_is_too_small_is_refused(tmp_path):
    path = write(tmp_path / "log.hdf5", **arrays(LENGTHS, ENDS))
    with pytest.raises(ValueError, match=r"log\.hdf5 has more transitions than data\.replay\.capacity=5"):
        fill_replay(ReplayBuffer(5), open_dataset(path), TanhMeanPolicy(3, 2, hidden=[4]))


def test_blocks_are_the_rows_of_the_file(tmp_path, monkeypatch):
    """Episodes at the borders of blocks of 4 rows, and one that is longer than a block."""
    monkeypatch.setattr("mmrl.datasets.hdf5.d4rl._BLOCK", 4)
    columns = arrays([3, 4, 9, 1], ["done"] * 4)
    dataset = open_dataset(write(tmp_path / "log.hdf5", **columns))
    assert isinstance(dataset, D4RLDataset) and dataset.lengths() == [3, 4, 9, 1]
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        for number in order:
            start = [0, 3, 7, 16][number]
            np.testing.assert_array_equal(
                dataset[number].observations["state"], columns["observations"][start : start + len(dataset[number])]
            )
