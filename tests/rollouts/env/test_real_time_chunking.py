"""Real-time chunking: weights and guidance against their equations, timing, and chunks that go on."""

import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.vla.chains.flow import FlowODE
from mmrl.policies.vla.chains.real_time import guidance_weight, guided_velocity
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.rollouts.env.real_time_chunking import RealTimeChunkingRollout, RealTimeVectorEnv, soft_mask
from sims.tabletop.sims import Reach
from sims.task import SimTask
from tests.sims.test_chunked import Counter


def test_weights_are_those_of_the_paper():
    """H = 8, d = 2, s = 3: c_i = (5 - i) / 4 = 3/4, 1/2, 1/4 for i = 2, 3, 4, and W_i = c_i (e^c_i - 1) / (e - 1)."""
    expected = [1, 1, 0.4875509, 0.1887703, 0.0413242, 0, 0, 0]
    assert soft_mask(8, 2, 3).tolist() == pytest.approx(expected, abs=1e-6)
    assert soft_mask(4, 0, 4).tolist() == [0, 0, 0, 0]


def test_the_weight_of_the_guidance_is_limited():
    """At t = 1/2: (1/4 + 1/4) / (1/4) = 2; at 1 and 0 it has no bound of its own."""
    assert guidance_weight(torch.tensor([0.5, 1.0, 0.2]), 3.0).tolist() == pytest.approx([2.0, 3.0, 3.0])
    assert guidance_weight(torch.tensor([0.2]), 9.0).item() == pytest.approx(0.68 / 0.16)


def test_guidance_is_exact_where_chunks_are_normal():
    """Chunks from N(0, I) have the velocity (2t - 1) x / (t^2 + (1 - t)^2); the guided one ends at the target.

    With x_0 = y known, x_t = (1 - t) y + t noise, so the velocity noise - y is (x - y) / t.
    """
    ideal = types.SimpleNamespace(
        predict=lambda prefix, x, t: ((2 * t - 1)[:, None, None] * x / (t**2 + (1 - t) ** 2)[:, None, None], None)
    )
    x, target, time = torch.randn(5, 3, 2), torch.randn(5, 3, 2), torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    found = guided_velocity(ideal, (), x, time, target, torch.ones_like(x), 1e9)
    assert torch.allclose(found, (x - target) / time[:, None, None], atol=1e-4)
    free = guided_velocity(ideal, (), x, time, target, torch.zeros_like(x), 1e9)
    assert torch.allclose(free, ideal.predict((), x, time)[0])


def test_the_old_chunk_is_played_until_the_new_one_is_there():
    """H = 4, d = 1, s = 2: of chunks 0123 and 4567 are played 01 and 25; environment i ends after i + 2 steps."""
    played, inner = [], Counter(3)
    step = inner.step
    inner.step = lambda action: (played.append(np.ravel(action) * 8), step(action))[1]
    env = RealTimeVectorEnv(inner, 4, delay=1, execute=2)
    seen, _ = env.reset(seed=[0, 1, 2])
    assert not seen["previous_steps"].any()
    for chunk in np.arange(8, dtype=np.float32).reshape(2, 1, 4, 1) / 8:
        seen, rewards, terminated, _, infos = env.step(np.repeat(chunk, 3, axis=0))
    assert np.allclose(np.stack(played)[:, 2], [0, 1, 2, 5])
    assert seen["previous_steps"].all() and np.allclose(seen["previous_chunk"][2, :, 0] * 8, [6, 7, 0, 0])
    assert terminated.all() and rewards.tolist() == [1, 1, 2]  # the first ended in its first chunk and repeats its flag
    assert infos["scores"]["count"].tolist() == [0, 3, 4]


@pytest.fixture
def flow():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "heads": 2, "intermediate_size": 32, "layers": 1}
    return ActionFlowPolicy(
        FlowODE(steps=5), path=None, chunk=6, action_dims=3, proprio_dims=13, visual_tokens=0, expert_layers=1, **sizes
    )


def context(flow, purpose="eval"):
    task = SimTask(Reach(level="easy", chunk=6, max_decisions=2, observe=()))
    engine = LocalEngine()
    engine.sync(flow, 0)
    return Context(task, engine, flow, Sampling(decode="mean"), seed=0, iteration=0, purpose=purpose)


def test_a_guided_chunk_begins_as_the_old_one_goes_on(flow):
    ctx = context(flow)
    env = ctx.task.sim.make(4)
    seen, _ = env.reset(seed=[0, 2, 4, 6])
    rows = [{name: column[i] for name, column in seen.items()} for i in range(4)]
    observation = flow.collate([flow.encode(raw) for raw in rows])
    env.close()
    old = torch.rand(4, 6, 3, generator=torch.Generator().manual_seed(1)) - 0.5
    weights = soft_mask(6, 2, 2)[None, :, None].expand_as(old)
    held, free = (
        flow.continue_chunks(observation, old, weight, 5.0, Noise([1, 2, 3, 4])) for weight in (weights, 0 * weights)
    )
    distance = lambda chunk: (chunk - old)[:, :2].abs().mean().item()  # noqa: E731
    assert distance(held) < 0.1 * distance(free)


def test_episodes_are_those_without_guidance_where_there_is_no_delay_and_no_rest(flow):
    """d = 0 and s = H: every chunk is played whole, and is the ODE's from the same noise."""
    ctx = context(flow)
    (episode,) = RealTimeChunkingRollout(delay=0, execute=6, bootstrap=False).collect([(0, ctx.task[0])], ctx)
    (plain,) = _plain(ctx)
    assert len(episode.turns) == len(plain.turns) == 2
    for one, other in zip(episode.turns, plain.turns):
        assert np.allclose(one.completion.output, other.completion.output, atol=1e-5)


def _plain(ctx):
    from mmrl.rollouts.env.episodic import EpisodicRollout

    return EpisodicRollout(bootstrap=False).collect([(0, ctx.task[0])], ctx)


def test_what_cannot_be_guided_is_refused_by_name(flow):
    ctx = context(flow)
    prompts = [(0, ctx.task[0])]
    with pytest.raises(ValueError, match="train with rollout=env"):
        RealTimeChunkingRollout(1, 2).collect(prompts, replace(ctx, purpose="train"))
    with pytest.raises(ValueError, match="SimpleNamespace is none"):
        RealTimeChunkingRollout(1, 2).collect(prompts, replace(ctx, policy=types.SimpleNamespace(chunk=6)))
    with pytest.raises(ValueError, match="delay=3 and execute=4 are more control steps than the policy's chunk of 6"):
        RealTimeChunkingRollout(3, 4).collect(prompts, ctx)
    with pytest.raises(ValueError, match=r"rollout\.delay must be in \[0, 2\], got 3"):
        RealTimeChunkingRollout(3, 2)
