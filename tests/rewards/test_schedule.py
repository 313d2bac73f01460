"""Weights of scores over the iterations, and the reward that has them in training and on held-out problems."""

import csv

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Prompt
from mmrl.rewards.compose import Composition, WeightedSum
from mmrl.rewards.schedule import ScheduledReward, WeightSchedule
from mmrl.rollouts.text.scripted import scripted_episode
from tests.tiny_recipes import QUIET, TEXT


@pytest.mark.parametrize(
    ("shape", "weights"),
    [("linear", [2, 2, 1.5, 1, 1]), ("cosine", [2, 2, 1.5, 1, 1]), ("step", [2, 2, 2, 1, 1])],
)
def test_weights_by_iteration(shape, weights):
    schedule = WeightSchedule(start=2.0, end=1.0, first=10, last=30, shape=shape)
    assert [schedule.weight(i) for i in (0, 10, 20, 30, 99)] == pytest.approx(weights)


def test_the_cosine_is_slower_at_its_ends():
    schedule = WeightSchedule(start=0.0, end=1.0, last=4, shape="cosine")
    assert [schedule.weight(i) for i in range(5)] == pytest.approx([0, 0.5 - 0.5**1.5, 0.5, 0.5 + 0.5**1.5, 1])


def test_the_reward_of_an_iteration_and_of_held_out_problems():
    episode = scripted_episode(Prompt("a/train/0"), "x")
    episode.scores = {"exact": 1.0, "format": 1.0}
    for inner in (WeightedSum({"exact": 1.0, "format": 0.5}), Composition({"exact": 1.0, "format": 0.5})):
        reward = ScheduledReward(inner, {"format": WeightSchedule(start=1.0, end=0.0, last=4)})
        assert [reward.at(i)([episode])[0] for i in (0, 1, 4)] == pytest.approx([2, 1.75, 1])
        assert reward([episode]) == [1.0]


def test_the_training_loop_uses_the_weights_of_its_iteration(tmp_path):
    quiet = [word for word in QUIET if word != "trainer.logger=false"]
    cfg = compose([*TEXT, *quiet, "trainer.max_epochs=2", f"run_dir={tmp_path}"])
    cfg.data.reward = {
        "_target_": "mmrl.rewards.schedule.ScheduledReward",
        "inner": {"_target_": "mmrl.rewards.compose.WeightedSum", "weights": {"exact": 0.0, "digits": 0.0}},
        "schedules": {
            "exact": {"start": 0.0, "end": 1.0, "last": 1},
            "digits": {"start": 1.0, "end": 0.0, "last": 1},
        },
    }
    CLI(to_lightning(cfg)).fit()
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("rollout/reward")]
    assert [row["rollout/reward"] for row in rows] == [rows[0]["rollout/score/digits"], rows[1]["rollout/score/exact"]]


def test_unknown_scores_and_shapes_are_refused():
    with pytest.raises(ValueError, match=r"schedules names \['format'\], which have no weight"):
        ScheduledReward(WeightedSum({"exact": 1.0}), {"format": WeightSchedule(1.0, 0.0, 4)})
    with pytest.raises(ValueError, match="needs 0 <= first < last"):
        WeightSchedule(1.0, 0.0, last=4, first=4)
    with pytest.raises(ValueError, match="shape must be linear, cosine or step"):
        WeightSchedule(1.0, 0.0, last=4, shape="exponential")
