"""Rewards of a goal for a recording without rewards, asked for by name, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mmrl.__main__ import main
from mmrl.data.offline.goal_reward import GoalReward
from mmrl.datasets.formats import open_dataset
from tests.tiny_recipes import QUIET

SMALL = (*QUIET, "policy.hidden=[8]", "data.gradient_steps=4", "data.replay.batch_size=8", "trainer.max_epochs=1")
GOAL = ("data.relabelling._target_=mmrl.data.offline.goal_reward.GoalReward", "data.relabelling.goal=[3.0]")


@pytest.fixture
def maze(tmp_path) -> Path:
    """Trajectories along a line, in OGBench's form: positions 0 1 2 3 4 and 6 5 4 3, beside a number that is noise."""
    places = np.array([0, 1, 2, 3, 4, 6, 5, 4, 3], np.float32)
    columns = {"observations": np.stack([places, np.full(9, 7)], 1), "actions": np.linspace(-1, 1, 9)[:, None]}
    np.savez_compressed(tmp_path / "maze.npz", **columns, terminals=np.isin(np.arange(9), [4, 8]))
    return tmp_path / "maze.npz"


def relabel(path, **options):
    dataset, _ = GoalReward(**options).relabel(open_dataset(path), 0, Path(), torch.device("cpu"))
    return [dataset[number].rewards.tolist() for number in range(len(dataset))]


def test_rewards_by_hand(maze):
    """The reward of a row is that of the position after it; the last row of a trajectory has its own."""
    assert relabel(maze, goal=[3.0]) == [[-1, -1, 0, -1, -1], [-1, -1, 0, 0]]
    assert relabel(maze, goal=[3.0], tolerance=1) == [[-1, 0, 0, 0, 0], [-1, 0, 0, 0]]
    assert relabel(maze, goal=[7.0], dims=[1]) == [[0] * 5, [0] * 4]
    # position 2 is sqrt(0.4^2 + 0.8^2) = 0.894 from the goal, and position 3 is sqrt(0.6^2 + 0.8^2) = 1
    assert relabel(maze, goal=[2.4, 7.8], tolerance=0.95) == [[-1, 0, -1, -1, -1], [-1] * 4]


def test_what_is_refused(maze):
    with pytest.raises(ValueError, match="goal has 2 values for the dimensions"):
        GoalReward([1.0, 2.0], dims=[0])
    with pytest.raises(ValueError, match="tolerance"):
        GoalReward([1.0], tolerance=0)
    with pytest.raises(
        ValueError, match=r"maze\.npz has no vector 'state' with the dimensions \[5\]; it has state \[2\]"
    ):
        relabel(maze, goal=[1.0], dims=[5])
    with pytest.raises(ValueError, match=r"has no vector 'proprio'"):
        relabel(maze, goal=[1.0], observation="proprio")


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_ogbench_trains_where_a_goal_is_named(maze, tmp_path, place):
    words = ["recipe=iql", "setting=transitions", f"task.path='{maze}'", *SMALL, *GOAL, f"run_dir='{tmp_path}/run'"]
    assert main(["fit", *words, f"data.on_disk={str(place == 'disk').lower()}"]) == 0


def test_ogbench_without_a_goal_is_refused(maze, tmp_path, capsys):
    words = ["recipe=iql", "setting=transitions", f"task.path='{maze}'", *SMALL, f"run_dir='{tmp_path}/run'"]
    assert main(["fit", *words]) != 0
    message = " ".join(capsys.readouterr().err.split())
    assert "maze.npz episode 0 (rows 0 to 4): it has no rewards" in message and "GoalReward" in message
