"""Hindsight goals: their distribution by counting, samples by hand, and recordings that have none."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.data.offline.hindsight import GoalReplayData, HindsightGoals, HindsightReplayBuffer
from tests.data.offline.recordings import arrays, write
from tests.tiny_recipes import QUIET

FUTURE = HindsightGoals(0.0, 1.0, 0.0)
SMALL = (*QUIET, "policy.hidden=[8]", "data.gradient_steps=2", "data.replay.batch_size=8", "trainer.max_epochs=1")


def fill(lengths, ends, **options) -> HindsightReplayBuffer:
    """A buffer whose row i has the state (i, -i); a truncated episode has one row more, its last observation."""
    replay = HindsightReplayBuffer(**{"goals": FUTURE, "capacity": 100, "batch_size": 8, "gamma": 0.5, **options})
    number = 0
    for episode, (length, end) in enumerate(zip(lengths, ends)):
        states = torch.arange(number, number + length + 1).float()[:, None] * torch.tensor([1.0, -1.0])
        last = torch.arange(length) == length - 1
        rows = Batch({"obs.state": states[:length]}, action=torch.zeros(length, 1, 2), reward=torch.ones(length))
        rows = rows.with_columns(
            episode=torch.full((length,), episode), is_last=last, is_terminal=last & (end == "done")
        )
        final = Batch({"obs.state": states[length:]}, episode=torch.tensor([episode]))
        number += length + (end == "time")
        replay.add(rows, final if end == "time" else Batch(episode=torch.zeros(0, dtype=torch.long)))
    return replay


def test_a_terminal_row_is_a_goal_and_no_transition():
    """Rows 0 to 2 and the last observation 3; rows 4 and 5, of which 5 is terminal: what follows it is not known."""
    replay = fill([3, 2], ["time", "done"])
    rows, last = replay.transitions()
    assert rows.tolist() == [0, 1, 2, 4] and last.tolist() == [3, 3, 3, 3, 5, 5]
    batch = replay.sample(40, np.random.default_rng(0))
    state, goal = batch["obs.state"][..., 0], batch["obs.goal"][..., 0]
    assert batch["obs.goal"].shape == (40, 8, 2) and torch.equal(batch["obs.goal"], batch["next.goal"])
    assert set(state.unique().tolist()) == {0, 1, 2, 4} and torch.equal(batch["next.state"][..., 0], state + 1)
    assert (goal > state).all() and set(goal[state == 4].tolist()) == {5}


def test_geometric_goals_have_the_geometric_distribution_cut_at_the_end():
    """gamma 0.5 from row 1 with the last state in row 4: 1/2, 1/4 and what is left, 1/4, for rows 2, 3 and 4."""
    rng, index = np.random.default_rng(0), np.full(40_000, 1)
    goals = FUTURE.draw(index, np.full(40_000, 4), 9, 0.5, rng)
    shares = np.bincount(goals, minlength=9) / 40_000
    assert shares == pytest.approx([0, 0, 0.5, 0.25, 0.25, 0, 0, 0, 0], abs=0.01)  # 4 deviations


def test_a_mixture_by_brute_force():
    """Row 1 of 0 to 4 among 9 rows: 0.2 for itself, 0.5 / 3 for each of 2 to 4, and 0.3 / 9 for every row."""
    rng, index = np.random.default_rng(1), np.full(60_000, 1)
    goals = HindsightGoals(0.2, 0.5, 0.3, uniform=True).draw(index, np.full(60_000, 4), 9, 0.9, rng)
    expected = np.full(9, 0.3 / 9)
    expected[1] += 0.2
    expected[2:5] += 0.5 / 3
    assert np.bincount(goals, minlength=9) / 60_000 == pytest.approx(expected, abs=0.008)


def test_rewards_are_0_at_the_goal_and_1_less_elsewhere():
    replay = fill([3], ["time"], goals=HindsightGoals(0.5, 0.5, 0.0), actor_goals=FUTURE)
    batch = replay.sample(20, np.random.default_rng(0))
    reached = (batch["obs.state"] == batch["obs.goal"]).all(-1)
    assert 0.3 < reached.float().mean() < 0.7
    assert torch.equal(batch["reward"], torch.where(reached, 0.0, -1.0))
    assert torch.equal(batch["discount"], torch.where(reached, 0.0, 0.5))
    assert (batch["actor_goal"][..., 0] > batch["obs.state"][..., 0]).all()
    assert replay.read(torch.tensor([0, 1]))["reward"].tolist() == [1, 1]  # the recorded ones are kept


def test_some_entries_of_the_state_are_a_goal():
    replay = fill([3, 3], ["time", "time"], goal_entries=[1])
    batch = replay.sample(2, np.random.default_rng(0))
    assert batch["obs.goal"].shape == (2, 8, 1) and (batch["obs.goal"][..., 0] < -batch["obs.state"][..., 0]).all()
    with pytest.raises(ValueError, match=r"goal_entries=\[2\]: the state vector has entries 0 to 1"):
        fill([3, 3], ["time", "time"], goal_entries=[2]).sample(1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"goal_entries": []}, "a goal needs at least one entry"),
        ({"n_steps": 3}, "n_steps must be 1"),
        ({"gamma": 1.0}, "gamma must be less than 1"),
        ({"capacity": 4}, "capacity=4 is too small"),
        ({"goals": HindsightGoals(0.0, 0.5, 0.5)}, "the recording has one episode"),
        ({"actor_goals": HindsightGoals(0.0, 0.5, 0.5)}, "the recording has one episode"),
    ],
)
def test_what_has_no_goals_is_refused(options, refused):
    with pytest.raises(ValueError, match=refused):
        fill([4], ["time"], **options).sample(1, np.random.default_rng(0))


def test_rows_without_a_next_observation_are_refused():
    with pytest.raises(ValueError, match="none of 2 recorded rows has a next observation"):
        fill([1, 1], ["done", "done"]).sample(1, np.random.default_rng(0))


@pytest.mark.parametrize("shares", [(0.5, 0.6, 0.0), (-0.1, 1.1, 0.0)])
def test_shares_that_are_no_probabilities_are_refused(shares):
    with pytest.raises(ValueError, match="probabilities"):
        HindsightGoals(*shares)


def test_only_a_recording_has_hindsight():
    data = GoalReplayData.__new__(GoalReplayData)
    data.__dict__ |= {"path": None, "log": None, "collect_from": None, "task": SimpleNamespace()}
    with pytest.raises(ConfigError, match="learn from a recording"):
        data.setup("fit")


@pytest.mark.parametrize("recipe", ["gcbc", "gciql", "hilp"])
def test_own_data_in_one_line_and_without_rewards(tmp_path, recipe):
    columns = arrays([6, 5, 7], ["time", "done", "time"])
    log = write(tmp_path / "log.hdf5", **{**columns, "rewards": None if recipe == "gciql" else columns["rewards"]})
    words = [f"recipe={recipe}", "setting=transitions", f"task.path='{log}'", *SMALL, f"run_dir='{tmp_path}/run'"]
    small = ["policy.skill_dims=3", "policy.representation_hidden=[8]"] if recipe == "hilp" else []
    cli = CLI(to_lightning(compose([*words, *small, "capture=false"])))
    cli.fit()
    assert cli.model.updates == 2 and len(cli.datamodule.replay.transitions()[0]) == 5 + 4 + 6
    if recipe == "hilp":  # the recorded rewards have a direction
        assert cli.model.policy.skill.norm().item() == pytest.approx(1, abs=1e-5)
        assert cli.model.policy.landmarks.abs().sum() > 0


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data.on_disk=true", "hindsight goals are drawn from all states"),
        ("data.replay.goal_entries=[0]", r"policy.goal_dims=\d, and goals have 1 numbers .* set policy.goal_dims=1"),
    ],
)
def test_words_that_do_not_fit_goals_are_refused(tmp_path, word, message):
    log = write(tmp_path / "log.hdf5", **arrays([6, 5], ["time", "done"]))
    words = ["recipe=gcbc", "setting=transitions", f"task.path='{log}'", *SMALL, f"run_dir='{tmp_path}/run'", word]
    with pytest.raises(ConfigError, match=message):
        CLI(to_lightning(compose([*words, "capture=false"]))).fit()
