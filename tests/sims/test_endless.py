"""An environment that never ends is said and refused wherever episodes are played to their ends."""

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest

import sims.workers.demonstrations
from mmrl.core.types import Context, Sampling
from mmrl.datasets.recording import ExpertActor, record
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.scripted import RandomActions, SimExpert
from sims.gym import GymSim
from sims.task import SimTask
from sims.workers.demonstrations import demonstrate
from tests.sims.odd_environments import Endless, id_of


class Skilled(GymSim):
    """The endless environment with an expert that does nothing."""

    def expert(self, env) -> np.ndarray:
        return np.zeros((env.num_envs, 1, *env.single_action_space.shape), np.float32)


class Named(gymnasium.vector.VectorWrapper):
    """Environments whose observations have a name."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return {"state": observation}, info

    def step(self, actions):
        observation, *rest = super().step(actions.reshape(self.action_space.shape))
        return {"state": observation}, *rest


class NamedSim(Skilled):
    def make(self, num_envs: int):
        return Named(super().make(num_envs))


gymnasium.register("odd/EndlessBox-v0", entry_point=lambda: Endless(acted=gymnasium.spaces.Box(-9, 9, (1,))))
SIM, NAMED = Skilled(id_of("endless")), NamedSim("odd/EndlessBox-v0")


def play(rollout: EpisodicRollout) -> None:
    task = SimTask(SIM)
    ctx = Context(task, None, None, Sampling(), seed=0, iteration=0, purpose="eval")  # type: ignore[arg-type]
    rollout.collect([(0, task[0])], ctx)


PLAYERS: dict[str, tuple[Callable[[], object], str]] = {
    "random actions": (lambda: play(RandomActions(max_decisions=40)), r"40 decisions \(rollout\.max_decisions\)"),
    "expert": (lambda: play(SimExpert(max_decisions=40)), r"40 decisions \(rollout\.max_decisions\)"),
    "recording": (
        lambda: list(record(SIM, [0, 1], lambda seeds: ExpertActor(SIM, seeds, 0.0), most=40)),
        r"40 decisions \(the limit of a recording\)",
    ),
    "demonstrations": (lambda: demonstrate(NAMED, [0, 1], 1, 0.0), "a demonstration has not ended after 40 control"),
}


@pytest.mark.parametrize("name", PLAYERS)
def test_an_episode_that_does_not_end_is_refused(name, monkeypatch):
    monkeypatch.setattr(sims.workers.demonstrations, "MOST_STEPS", 40)
    call, message = PLAYERS[name]
    with pytest.raises(RuntimeError, match=rf"{message}.*sim\.max_episode_steps=1000"):
        call()
