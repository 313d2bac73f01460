"""Episodes in vector environments, with a small random policy and the local engine."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from mmrl.core.rng import Noise, derive_seed
from mmrl.core.types import Context, Prompt, Sampling, Sim
from mmrl.engines.local import LocalEngine
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.rollouts.env.episodic import EpisodicRollout
from sims.tabletop import Reach
from sims.task import SimTask

BINS = 9


class Guess(Policy):
    """Uniform action bins, one token per number, control step by control step; values the tip's height."""

    def __init__(self, shape=(5, 3), values=False, key="proprio"):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(1))
        self.shape, self.values, self.key = shape, values, key
        self.encoded = 0

    def encode(self, raw):
        require_inputs(raw, [self.key], self)
        self.encoded += 1
        return {"x": torch.as_tensor(raw[self.key], dtype=torch.float32)}

    def act(self, observation, sampling, noise):
        n, t = len(noise), int(np.prod(self.shape))
        ids = (noise.uniform(t) * BINS).long()
        output = list((ids.float() / (BINS - 1) * 2 - 1).reshape(n, *self.shape).numpy())
        logprobs = torch.full((n, t), -float(np.log(BINS)))
        values = observation["x"][:, 2] if self.values else None
        return Action(ids, logprobs, torch.ones(n, t, dtype=torch.bool), output, values)

    def forward(self, batch):
        raise NotImplementedError

    def save_pretrained(self, folder):
        raise NotImplementedError


def context(task, policy, group_size=2, **options):
    engine = LocalEngine(max_rows=7)
    engine.sync(policy, 3)
    return Context(task, engine, policy, Sampling(), seed=0, iteration=0, group_size=group_size, **options)


def reach(**options):
    return SimTask(Reach(image_size=16, **options), count=64)


def play(task, policy, slots, max_envs=256, **options):
    prompts = [(slot, task[slot]) for slot in slots]
    return EpisodicRollout(max_envs).collect(prompts, context(task, policy, **options))


def test_episodes_come_in_order_and_end_once():
    task, seen = reach(), []
    episodes = play(task, Guess(), range(8), group_size=3, progress=lambda *p: seen.append(p))
    assert [(e.group, e.sample_index) for e in episodes] == [(g, a) for g in range(8) for a in range(3)]
    assert seen[0] == ("rollout", 0, 24) and seen[-1] == ("rollout", 24, 24)
    for episode in episodes:
        scores = task.score(episode)
        assert 1 <= len(episode.turns) <= 4
        assert episode.ended == ("done" if scores["success"] or scores["wrong_object"] else "time")
        assert episode.ended == "done" or len(episode.turns) == 4
        assert scores["return"] == scores["success"] == episode.turns[-1].reward
        assert all(turn.reward == 0 for turn in episode.turns[:-1])
        assert episode.turns[0].completion.policy_version == 3 and episode.bootstrap_value == 0
    assert {e.ended for e in episodes} == {"done", "time"}


def test_waves_rows_and_episodes_do_not_change_an_episode():
    """The same (slot, sample index) plays the same episode alone, in waves of five, and among sixteen."""
    task, policy = reach(), Guess()
    together = {(e.group, e.sample_index): e for e in play(task, policy, range(8))}
    for slots, max_envs in ((range(8), 5), ([6], 256), ([3, 1], 1)):
        for episode in play(task, policy, slots, max_envs):
            twin = together[episode.group, episode.sample_index]
            assert len(episode.turns) == len(twin.turns) and episode.ended == twin.ended
            assert episode.info == twin.info
            for one, other in zip(episode.turns, twin.turns):
                assert one.reward == other.reward
                assert torch.equal(one.completion.action_mask, other.completion.action_mask)
                assert torch.equal(one.completion.action, other.completion.action)
                assert torch.equal(one.completion.observation["x"], other.completion.observation["x"])


def test_draws_are_keyed_by_decision_and_iteration():
    task, policy = reach(), Guess()
    ctx = context(task, policy, group_size=1)
    rollout = EpisodicRollout()
    first = rollout.collect([(5, task[0])], ctx)[0]
    ids = Guess().act({}, Sampling(), Noise([derive_seed(0, "train", 0, 5, 0, 1)])).action[0]
    assert torch.equal(first.turns[1].completion.action, ids)
    ctx = replace(ctx, iteration=1)
    assert not torch.equal(
        first.turns[0].completion.action, rollout.collect([(5, task[0])], ctx)[0].turns[0].completion.action
    )


def test_choices_that_were_not_played_are_masked():
    """15 tokens, 5 control steps of 3: after `executed` steps the first 3 * executed tokens count."""
    task, policy = reach(radius_m=0.06, max_decisions=12), Guess()
    episodes = play(task, policy, range(16), group_size=2)
    cut = 0
    env = task.sim.make(1)
    for episode in episodes:
        for turn in episode.turns[:-1]:
            assert turn.completion.action_mask.all()
        live = int(episode.turns[-1].completion.action_mask.sum())
        env.reset(seed=[episode.prompt.info["seed"]])
        for turn in episode.turns:
            infos = env.step(turn.completion.output[None])[4]
        assert live == 3 * infos["executed"][0]
        cut += live < 15
    assert cut > 3


def test_a_group_is_encoded_once_at_its_start():
    task, policy = reach(max_decisions=1), Guess()
    ctx = context(task, policy, group_size=4)
    ctx.engine.max_rows = 256
    EpisodicRollout().collect([(i, task[i]) for i in range(3)], ctx)
    assert policy.encoded == 3


def test_time_bootstraps_and_termination_does_not():
    task = reach()
    episodes = play(task, Guess(values=True), range(16))
    assert {e.ended for e in episodes} == {"done", "time"}
    env = task.sim.make(1)
    for episode in episodes:
        if episode.ended == "done":
            assert episode.bootstrap_value == 0
            continue
        env.reset(seed=[episode.prompt.info["seed"]])
        for turn in episode.turns:
            observation = env.step(turn.completion.output[None])[0]
        assert episode.bootstrap_value == float(observation["proprio"][0, 2])  # this policy's value is the tip's height


def test_time_may_be_an_end_like_any_other():
    task = reach()
    prompts = [(slot, task[slot]) for slot in range(16)]
    episodes = EpisodicRollout(bootstrap=False).collect(prompts, context(task, Guess(values=True)))
    assert {e.ended for e in episodes} == {"done", "time"}
    assert all(episode.bootstrap_value == 0 for episode in episodes)


class Line(VectorEnv):
    """A point on a line moves by -1, 0 or 1; it is done beyond 3, cut after six steps, broken below -3."""

    def __init__(self, count):
        self.num_envs = count
        self.single_observation_space = spaces.Box(-9, 9, (1,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (count, 1), np.float32)
        self.closed_once = False

    def reset(self, *, seed=None, options=None):
        self.x = np.array([[s % 3] for s in seed], np.float32)
        self.t = np.zeros(self.num_envs, int)
        self.over = np.zeros(self.num_envs, bool)
        return self.x.copy(), {}

    def step(self, actions):
        moving = ~self.over
        self.x[moving] += np.sign(actions[moving])
        self.t[moving] += 1
        done, bad = self.x[:, 0] > 3, self.x[:, 0] < -3
        truncated = (self.t >= 6) | bad
        self.over |= done | truncated
        return self.x.copy(), np.where(moving, 1.0, 0.0), done, truncated & ~done, {"error": bad}

    def close_extras(self, **kwargs):
        self.closed_once = True


class LineSim(Sim):
    name = "line"

    def __init__(self):
        self.made = []

    def make(self, num_envs):
        self.made.append(Line(num_envs))
        return self.made[-1]


def test_a_plain_array_is_a_state_and_infos_are_optional():
    sim = LineSim()
    task = SimTask(sim, count=64)
    episodes = play(task, Guess(shape=(1,), key="state"), range(40), group_size=2)
    assert {e.ended for e in episodes} == {"done", "time", "error"}
    for episode in episodes:
        assert sum(turn.reward for turn in episode.turns) == len(episode.turns)
        assert episode.info["scores"] == {}
        assert all(turn.completion.action_mask.all() for turn in episode.turns)
        x = [float(turn.completion.observation["x"]) for turn in episode.turns]
        assert x[0] == episode.prompt.info["seed"] % 3
        assert all(abs(b - a) <= 1 for a, b in pairwise(x))


def test_the_environment_is_kept_while_its_size_is():
    sim = LineSim()
    task = SimTask(sim, count=64)
    rollout, ctx = EpisodicRollout(max_envs=8), context(task, Guess(shape=(1,), key="state"))
    for _ in range(2):
        rollout.collect([(i, task[i]) for i in range(5)], ctx)  # ten episodes in two waves of five
    assert [env.num_envs for env in sim.made] == [5]
    rollout.collect([(0, task[0])], ctx)
    assert [env.num_envs for env in sim.made] == [5, 2] and sim.made[0].closed_once
    assert rollout.collect([], ctx) == []


def test_refusals():
    task = reach()
    with pytest.raises(ValueError, match="max_envs"):
        EpisodicRollout(max_envs=0)
    with pytest.raises(ValueError, match=r"info\['seed'\]"):
        EpisodicRollout().collect([(0, Prompt("p"))], context(task, Guess()))
    with pytest.raises(ValueError, match=r"shape \(4, 3\), but the simulator takes \(5, 3\)"):
        play(task, Guess(shape=(4, 3)), [0])
    with pytest.raises(ValueError, match="single_turn"):
        EpisodicRollout().collect([(0, Prompt("p"))], context(_TextTask(), Guess()))


class _TextTask:
    name = "text"
