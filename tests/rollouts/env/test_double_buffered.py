"""Episodes in processes: halves that take turns with the policy, and processes that die."""

import numpy as np
import pytest
import torch

from mmrl.policies.base import Action
from mmrl.rollouts.env.double_buffered import DoubleBufferedRollout
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from sims.gym import GymSim
from sims.tabletop import Reach
from sims.task import SimTask
from tests.rollouts.env.test_episodic import Guess, context
from tests.sims.workers.fragile import DIE, GO

pytest.importorskip("msgpack")
from sims.workers import WorkerSim


def collect(rollout, task, slots, policy, group_size=2):
    ctx = context(task, policy, group_size=group_size)
    calls, sample = [], ctx.engine.sample

    def watch(requests, sampling):
        calls.append([bool(env._waiting) for env in getattr(rollout, "_halves", ())])
        return sample(requests, sampling)

    ctx.engine.sample = watch
    try:
        return rollout.collect([(slot, task[slot]) for slot in slots], ctx), calls
    finally:
        rollout.close()


def test_halves_play_the_same_episodes_and_one_is_stepped_while_the_other_infers():
    sim = Reach(image_size=8, wording="train")
    plain, _ = collect(EpisodicRollout(), SimTask(sim, count=64), range(5), Guess(values=True))
    policy = Guess(values=True)
    halves, calls = collect(DoubleBufferedRollout(max_envs=6), SimTask(WorkerSim(sim, 1), count=64), range(5), policy)
    assert [(e.group, e.sample_index) for e in halves] == [(e.group, e.sample_index) for e in plain]
    assert any(sum(waiting) == 1 for waiting in calls)
    for one, other in zip(plain, halves):
        assert (one.ended, one.info, one.bootstrap_value) == (other.ended, other.info, other.bootstrap_value)
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.reward == twin.reward and torch.equal(turn.completion.action, twin.completion.action)
            assert torch.equal(turn.completion.action_mask, twin.completion.action_mask)
            assert torch.equal(turn.completion.observation["x"], twin.completion.observation["x"])


def test_a_simulator_in_this_process_is_refused():
    with pytest.raises(ValueError, match=r"set sim\.workers=N"):
        collect(DoubleBufferedRollout(), SimTask(Reach(image_size=8), count=4), range(2), Guess())


class Deadly(Guess):
    """Goes on, but sometimes takes the action that kills the process."""

    def act(self, observation, sampling, noise):
        ids = torch.where(noise.uniform(1) < 0.04, DIE, GO)
        return Action(ids, torch.zeros(len(noise), 1), torch.ones(len(noise), 1, dtype=torch.bool), ids[:, 0].tolist())


@pytest.mark.parametrize("kind", [EpisodicRollout, DoubleBufferedRollout])
def test_a_process_that_dies_costs_the_episodes_that_it_played(kind):
    task = SimTask(WorkerSim(GymSim("tests.sims.workers.fragile:Fragile-v0"), 4), count=64)
    episodes, _ = collect(kind(max_envs=8), task, range(8), Deadly(shape=(), key="state"))
    ended = [episode.ended for episode in episodes]
    assert set(ended) == {"error", "time"}
    for episode in episodes:
        died = any(turn.completion.output == DIE for turn in episode.turns)
        assert episode.ended == "error" if died else len(episode.turns) == 6 or episode.ended == "error"
        assert episode.ended == "error" or np.isclose(task.score(episode)["steps"], 6)


def test_a_fixed_horizon_goes_on_after_a_death_and_counts_it():
    task = SimTask(WorkerSim(GymSim("tests.sims.workers.fragile:Fragile-v0"), 2), count=64)
    rollout = FixedHorizon(num_envs=4, horizon=10, max_errors=40)
    policy = Deadly(shape=(), key="state")
    segments = rollout.collect([(i, task[i]) for i in range(4)], context(task, policy))
    assert sum(len(segment.turns) for segment in segments) == 40
    errors = rollout.metrics()["sim_errors"]
    assert errors >= 2 and sum(segment.ended == "error" for segment in segments) <= errors
    assert all("SIGKILL" in segment.info["error"] for segment in segments if segment.ended == "error")
    assert rollout._env.venv.pool.restarts >= 1
