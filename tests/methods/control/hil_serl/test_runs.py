"""Runs of HIL-SERL: demonstrations, interventions, a dataset of `mmrl robot`, and a run that is resumed."""

import numpy as np
import pytest
import torch

import mmrl
from mmrl.__main__ import main
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.data.offline.transitions import fill_replay
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.formats import open_dataset
from mmrl.engines.local import LocalEngine
from mmrl.methods.control.hil_serl.data import HumanReplayData, check_replay
from mmrl.methods.control.hil_serl.rollout import InterventionRollout
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.runs.checkpoint_file import read_weights
from sims.point.sim import PointSim
from sims.tabletop.positions import TabletopPositions
from sims.tabletop.sims import Reach
from sims.task import SimTask
from tests.tiny_recipes import QUIET

LOGGED = tuple(word for word in QUIET if word != "trainer.logger=false")
SMALL = (
    "recipe=hil_serl",
    *LOGGED,
    "capture=false",
    "data.evaluation=null",
    "policy.hidden=[16]",
    "model.models.critic.hidden=[16]",
)
TINY = (
    *(*SMALL, "rollout.horizon=12", "data.gradient_steps=4", "data.learning_starts=8", "data.replay.batch_size=8"),
    *("data.replay.capacity=500", "data.replay.human_capacity=500", "rollout.patience=2", "rollout.duration=3"),
)


def collect(sim, patience=2, duration=4, horizon=15, rollout=None):
    """Segments of two environments with a random policy; also the rollout."""
    torch.manual_seed(0)
    policy = SquashedPolicy(sim.sizes()["observation_dims"], sim.sizes()["actions"], hidden=[8])
    engine = LocalEngine()
    engine.sync(policy, 0)
    task = SimTask(sim)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0)
    rollout = rollout or InterventionRollout(patience, duration, 0.0, num_envs=2, horizon=horizon)
    return rollout.collect([(i, task[i]) for i in range(2)], ctx), rollout


def column(episodes, name):
    return [np.concatenate([turn.completion.extra[name].numpy()[None] for turn in e.turns]) for e in episodes]


def test_the_humans_actions_are_those_of_the_expert_and_are_marked():
    """With duration 100 the human who took over ends the episode: its rows are the last ones. The same actions played
    again lead to the same states, in which the expert has the actions that are stored."""
    sim = TabletopPositions(Reach(level="easy"))
    episodes, rollout = collect(sim, patience=2, duration=100, horizon=12)
    first = {}
    for episode, flags in zip(episodes, column(episodes, "intervention")):
        assert (np.diff(flags.astype(int)) >= 0).all()
        first.setdefault(int(episode.prompt.key.rpartition("/")[2]), (episode, flags))
    for i, (episode, flags) in first.items():
        env = sim.make(1)
        env.reset(seed=[SimTask(sim)[i].info["seed"]])
        for turn, human in zip(episode.turns, flags):
            output = turn.completion.output
            assert np.array_equal(sim.expert(env)[0, 0], output) == human
            env.step(output[None])
    human = sum(int(flags.sum()) for flags in column(episodes, "intervention"))
    assert rollout.metrics()["rollout/interventions"] == human / 24 and human > 0


def test_stored_choices_are_the_actions_that_were_played():
    """tanh of the stored choice is the output, for rows of both; the policy's own actions are not the human's."""
    episodes, _ = collect(TabletopPositions(Reach(level="easy")))
    outputs = np.stack([turn.completion.output for e in episodes for turn in e.turns])
    choices = np.stack([turn.completion.action[0].tanh().numpy() for e in episodes for turn in e.turns])
    flags = np.concatenate(column(episodes, "intervention"))
    assert flags.any() and not flags.all() and np.allclose(outputs, choices, atol=1e-5)


def test_a_policy_that_gets_on_is_left_alone():
    episodes, rollout = collect(TabletopPositions(Reach(level="easy")), patience=100)
    assert rollout.metrics()["rollout/interventions"] == 0
    assert not np.concatenate(column(episodes, "intervention")).any()


def test_a_simulator_without_an_expert_is_refused():
    with pytest.raises(ValueError, match="sim 'point' has no scripted expert to take over"):
        collect(PointSim())


def test_a_run_has_demonstrations_and_interventions(tmp_path):
    """Of 3 episodes of the expert, about 7 steps each and all terminal, every transition is in the human's buffer."""
    run = mmrl.fit(*TINY, "data.demonstrations=3", "trainer.max_epochs=2", run_dir=tmp_path / "run")
    metrics = run.last_metrics
    assert 0 < metrics["rollout/interventions"] < 1 and metrics["replay/human_rows"] > 18


def test_a_resumed_run_goes_on_with_its_human(tmp_path):
    """Interventions, buffers and weights are those of a run that was not interrupted."""
    whole = mmrl.fit(*TINY, "trainer.max_epochs=4", run_dir=tmp_path / "whole")
    mmrl.fit(*TINY, "trainer.max_epochs=2", run_dir=tmp_path / "part")
    last = tmp_path / "part" / "checkpoints" / "last.ckpt"
    part = mmrl.fit(*TINY, "trainer.max_epochs=4", f"ckpt_path={last}", run_dir=tmp_path / "resumed")
    one, other = (read_weights(each.folder / "checkpoints" / "last.ckpt")["state_dict"] for each in (whole, part))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert whole.last_metrics["replay/human_rows"] == part.last_metrics["replay/human_rows"]


def test_rows_of_mmrl_robot_fill_the_humans_buffer(tmp_path, monkeypatch):
    """The loop is closed: a policy plays in real time, a human takes over, and the next training begins with the
    human's rows alone."""
    run = mmrl.fit(*TINY, "trainer.max_epochs=1", run_dir=tmp_path / "run")
    words = ["clock=simulated", "takeover=expert", "patience=3", "duration=4", "num_episodes=4", "split=train"]
    assert main(["robot", str(run.folder), *words, f"out={tmp_path / 'data'}", "video=false"]) == 0
    count = sum(int(episode.interventions.sum()) for episode in open_dataset(tmp_path / "data"))
    stored = []
    add = HumanReplayData._add

    def note(data, episodes):
        add(data, episodes)
        stored.append(data.replay.human.num_transitions)

    monkeypatch.setattr(HumanReplayData, "_add", note)
    mmrl.fit(*TINY, f"data.path={tmp_path / 'data'}", "trainer.max_epochs=1", run_dir=tmp_path / "next")
    assert count > 0 and count - 4 <= stored[-1] <= count  # an episode cut by time loses its last row
    # offline RL reads all rows
    dataset, replay = open_dataset(tmp_path / "data"), ReplayBuffer(1000, 8)
    fill_replay(replay, dataset, SquashedPolicy(12, 3, hidden=[8]))
    assert replay.num_transitions == sum(len(e) - (e.ended != "done") for e in dataset)


def test_an_ordinary_buffer_is_refused():
    with pytest.raises(ConfigError, match=r"data\.replay=ReplayBuffer: HIL-SERL needs HumanReplayBuffer"):
        check_replay(ReplayBuffer())
