"""Averages of overlapping chunks, against the formula and against lerobot."""

import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from mmrl.core.types import Completion, Context, Sampling
from mmrl.evaluation.video.recording import VideoSim
from mmrl.rollouts.env.temporal_ensembling import TemporalEnsemblingRollout, TemporalEnsemblingVectorEnv
from sims.tabletop.sims import Reach
from sims.task import SimTask
from tests.sims.test_chunked import Counter


def test_weights_are_those_of_the_paper():
    """Chunks of 3 at 5 control steps: w_0 = 1 for the oldest, w_1 = exp(-0.01), w_2 = exp(-0.02)."""
    env = TemporalEnsemblingVectorEnv(Counter(1), 3, 0.01)
    env.reset(seed=[0])
    chunks = np.random.default_rng(0).normal(size=(5, 1, 3, 1))
    first, second, third = 1.0, 0.9900498337491681, 0.9801986733067553
    for step in range(5):
        found = env.average(chunks[step])
        covering = [chunks[start, 0, step - start, 0] for start in range(max(step - 2, 0), step + 1)]
        weights = [first, second, third][: len(covering)]
        assert found[0, 0] == pytest.approx(np.dot(weights, covering) / sum(weights), abs=1e-12)


def test_averages_are_those_of_lerobot(monkeypatch):
    package = pytest.importorskip("lerobot")
    policies = types.ModuleType("lerobot.policies")
    policies.__path__ = [f"{package.__path__[0]}/policies"]
    monkeypatch.setitem(sys.modules, "lerobot.policies", policies)
    from lerobot.policies.act.modeling_act import ACTTemporalEnsembler

    original, env = ACTTemporalEnsembler(0.3, 4), TemporalEnsemblingVectorEnv(Counter(2), 4, 0.3)
    env.reset(seed=[0, 1])
    for chunk in torch.randn(9, 2, 4, 1, dtype=torch.float64):
        assert np.allclose(env.average(chunk.numpy()), original.update(chunk).numpy(), atol=1e-6)


def test_an_environment_begins_anew_alone():
    env = TemporalEnsemblingVectorEnv(Counter(2), 2, 0.0)
    env.reset(seed=[0, 1])
    env.step(np.ones((2, 2, 1), np.float32))
    env.reset(seed=[0, 1], options={"reset_mask": np.array([True, False])})
    assert env.average(np.zeros((2, 2, 1)))[:, 0].tolist() == [0.0, 0.5]


class Constant:
    """An engine whose policy always returns the same chunk."""

    def sample(self, requests, sampling):
        ids = torch.zeros(3, dtype=torch.long)
        return [
            Completion({}, ids, torch.zeros(3), torch.ones(3, dtype=torch.bool), np.full((3, 3), 0.1, np.float32))
            for _ in requests
        ]


def test_episodes_ask_at_every_control_step():
    task = SimTask(Reach(level="easy", chunk=3, max_decisions=2, observe=()))
    policy = types.SimpleNamespace(chunk=3)
    ctx = Context(task, Constant(), policy, Sampling(), seed=0, iteration=0, purpose="eval")
    episode = TemporalEnsemblingRollout(bootstrap=False).collect([(0, task[0])], ctx)[0]
    assert len(episode.turns) == 6 and episode.ended == "time"
    assert all(turn.completion.action_mask.all() for turn in episode.turns)
    recorded = VideoSim(task.sim, 1, 16)
    seen = replace(ctx, task=SimTask(recorded))
    TemporalEnsemblingRollout(bootstrap=False).collect([(0, seen.task[0])], seen)
    assert len(recorded.videos[0].frames) == 7
    with pytest.raises(ValueError, match="train with rollout=env"):
        TemporalEnsemblingRollout().collect([(0, task[0])], replace(ctx, purpose="train"))
    with pytest.raises(ValueError, match="single actions"):
        TemporalEnsemblingRollout().collect([(0, task[0])], replace(ctx, policy=types.SimpleNamespace(chunk=None)))
