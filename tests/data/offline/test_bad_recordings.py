"""Bad recordings in every format, in memory and on disk: refused by episode and row, or by file and column."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from mmrl.data.offline.checks import check_episode
from mmrl.data.offline.streamed_replay import StreamedReplay
from mmrl.data.offline.transitions import fill_replay
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.policies.control.tanh_mean import TanhMeanPolicy
from tests.data.offline.formats import FORMATS, Log

NAN, INF = float("nan"), float("inf")
SECOND = r"(episode 1|episode_1|demo_1)\b.*"
"""The second episode, as each format names it."""

BAD = {
    "no rewards": (Log(without=("rewards",)), "no rewards|'rewards' is missing"),
    "a reward of NaN": (Log(broken={("reward", 1, 2): NAN}), SECOND + "reward is not finite at control step 2"),
    "a state of NaN": (Log(broken={("state", 1, 1): NAN}), SECOND + "state is not finite at control step 1"),
    "an action of infinity": (Log(broken={("action", 1, 0): INF}), SECOND + "action is not finite at control step 0"),
    "a huge reward": (Log(broken={("reward", 2, 4): 1e10}), r"2\b.*reward is 1e\+10, larger than .* control step 4"),
    "a last observation of NaN": (
        Log(broken={("state", 0, 4): NAN}),
        r"0\b.*the observation state after the last action is nan at index \[0\]",
    ),
    "fewer rewards": (Log(short=("rewards",)), r"rewards? has (shape \[11\]|2 rows)|holds 4 rows"),
    "exchanged ends": (
        Log((5, 2, 5, 3), ("done", "time", "done", "time")),
        "look exchanged: a time limit ends episode 1 after row 1",
    ),
    "a limit that is a terminal state": (
        Log((4, 4, 4), ("done", "done", "done")),
        "every one of 3 episodes, the first too, has a terminal state at row 3",
    ),
}
MISSING = {
    ("a last observation of NaN", "lerobot"): "the format has none",
    ("exchanged ends", "robomimic"): "the format has no time limits",
}
"""What a format cannot be given, and why."""


def fill(path: Path, folder: Path | None) -> ReplayBuffer:
    dataset = open_dataset(path)
    torch.manual_seed(0)
    replay = ReplayBuffer(capacity=100, batch_size=8)
    replay = replay if folder is None else StreamedReplay(replay, folder)
    try:
        fill_replay(replay, dataset, TanhMeanPolicy(3, 2, hidden=[4]))
    finally:
        dataset.close()
    return replay


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_recording_is_read(tmp_path, name):
    """12 transitions; without a recorded last observation the two episodes that a limit ends lose one each."""
    rows = 10 if name == "lerobot" else 12
    on_disk, in_memory = fill(path := FORMATS[name](tmp_path, Log()), tmp_path), fill(path, None)
    assert on_disk.num_transitions == in_memory.num_transitions == rows


STATES = np.zeros((4, 3), np.float32)
ODD = {
    "rewards of two axes": (dict(rewards=np.ones((4, 1))), r"rewards have shape \[4, 1\], there are 4 actions"),
    "no last observation of a name": (dict(final={}), r"the observation after the last action lacks \['state'\]"),
    "a last observation of another width": (
        dict(final={"state": np.zeros(2)}),
        r"state after the last action has shape \[2\], those before it \[3\]",
    ),
}


@pytest.mark.parametrize("changes, message", ODD.values(), ids=ODD)
def test_episodes_of_other_shapes_are_refused(changes, message):
    fields = {"rewards": np.ones(4), "final": {"state": STATES[0]}, "where": "log.hdf5 episode 7"}
    check_episode(OfflineEpisode(np.zeros((4, 2)), {"state": STATES}, **fields))
    with pytest.raises(ValueError, match=rf"log\.hdf5 episode 7: .*{message}"):
        check_episode(OfflineEpisode(np.zeros((4, 2)), {"state": STATES}, **(fields | changes)))


def test_what_follows_a_terminal_state_is_not_read():
    final = {"state": np.full(3, NAN)}
    check_episode(OfflineEpisode(np.zeros((4, 2)), {"state": STATES}, rewards=np.ones(4), final=final, terminated=True))


CELLS = [(bad, name) for bad in BAD for name in FORMATS if (bad, name) not in MISSING]


@pytest.mark.parametrize("bad, name", CELLS, ids=[f"{bad}-{name}" for bad, name in CELLS])
def test_what_is_refused(tmp_path, bad, name):
    log, message = BAD[bad]
    path = FORMATS[name](tmp_path, log)
    places = [None, tmp_path / "rows"]
    for folder in places:
        with pytest.raises(ValueError, match=message) as caught:
            fill(path, folder)
        assert re.search(r"log|main_data\.hdf5", str(caught.value))  # the file
