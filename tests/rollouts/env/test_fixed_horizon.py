"""Segments of episodes: where they are cut, what follows them, and that they go on exactly."""

import gymnasium
import numpy as np
import pytest
import torch

from mmrl.annotators.gae import GAE
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.distributed import parallel
from mmrl.engines.local import LocalEngine
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from sims.gym import GymSim
from sims.task import SimTask

MODES = ["next_step", "same_step", "disabled"]
GAMMA = 0.5


class Walk(gymnasium.Env):
    """An episode of `limit` steps. The observation is the number of steps so far, one-hot; the reward is 1 + action."""

    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": [], "mmrl_infos": ["scores"]}

    def __init__(
        self, limit: int = 3, terminate: bool = True, fault: str = "", extra_steps: int = 0, bonus: bool = False
    ):
        self.limit, self.terminate, self.fault, self.extra_steps, self.bonus = (
            limit,
            terminate,
            fault,
            extra_steps,
            bonus,
        )
        self.observation_space = gymnasium.spaces.Box(0, 1, (limit + extra_steps + 1,), np.float32)
        self.end = limit

    def _seen(self) -> np.ndarray:
        return np.eye(*self.observation_space.shape, dtype=np.float32)[self.time]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.end = self.limit + int(self.np_random.integers(self.extra_steps + 1))
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        if self.fault == "raise" and self.time == 2:
            raise RuntimeError("the floor gave way")
        seen = self._seen() * (np.nan if self.fault == "nan" and self.time == 2 else 1)
        over = self.time == self.end
        info = {"scores": {"success": 1.0}} if over else {}
        reward = 1.0 + (int(action) if self.bonus else 0)
        return seen, reward, over and self.terminate, over and not self.terminate, info


gymnasium.register("tests/Walk-v0", entry_point=Walk)


def walk(mode: str, **kwargs) -> SimTask:
    return SimTask(GymSim("tests/Walk-v0", kwargs=kwargs, autoreset=mode))


def valued(values: list[float]) -> ControlPolicy:
    """A policy whose value of state i is values[i]."""
    policy = ControlPolicy(len(values), 2, hidden=[])
    with torch.no_grad():
        policy.value_net.weight.copy_(torch.tensor([values]))
        policy.value_net.bias.zero_()
    return policy


def context(task: SimTask, policy: ControlPolicy, iteration: int = 0, **options) -> Context:
    engine = LocalEngine()
    engine.sync(policy, iteration)
    return Context(task, engine, policy, Sampling(), seed=7, iteration=iteration, **options)


def summary(segment):
    return segment.ended, len(segment.turns), segment.bootstrap_value


def rows_of(segments) -> dict[str, list]:
    """Per environment: (observation, action, reward) of its rows in order."""
    out: dict[str, list] = {}
    for segment in segments:
        for turn in segment.turns:
            state = turn.completion.observation["state"].tolist()
            out.setdefault(segment.prompt.key, []).append((state, turn.completion.action.item(), turn.reward))
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "terminate, values",
    [
        # reward 1 each step, discount 1/2. Terminating: 1 + 1/2 + 1/4, 1 + 1/2, 1, and 99 must never be asked for
        (True, [1.75, 1.5, 1.0, 99.0]),
        # only watched for a while: 1 / (1 - 1/2) everywhere
        (False, [2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_true_values_have_no_advantage_because_truncation_bootstraps_and_termination_does_not(mode, terminate, values):
    task, policy, rollout = walk(mode, terminate=terminate), valued(values), FixedHorizon(num_envs=2, horizon=5)
    for iteration in range(4):
        segments = rollout.collect([], context(task, policy, iteration))
        batch = collate(segments, policy)
        assert batch.rows == 10
        out = GAE(gamma=GAMMA, gae_lambda=0.9)(batch, context(task, policy, iteration))
        assert out["advantages"].eq(0).all()
        assert torch.equal(out["returns"], batch["values"])


@pytest.mark.parametrize("mode", MODES)
def test_what_follows_each_kind_of_end(mode):
    # value of state i is 10 i: the final observation is state 3, never the state 0 of the next episode
    policy = valued([0.0, 10.0, 20.0, 30.0])
    for terminate, ended, bootstrap in ((True, "done", 0.0), (False, "time", 30.0)):
        segments = FixedHorizon(num_envs=1, horizon=5).collect([], context(walk(mode, terminate=terminate), policy))
        assert [summary(s) for s in segments] == [(ended, 3, bootstrap), ("cut", 2, 20.0)]
    batch = collate(segments, policy)
    assert batch["is_terminal"].tolist() == [False] * 5
    assert batch["bootstrap_value"].tolist() == [0, 0, 30, 0, 20]
    assert batch["is_last"].tolist() == [False, False, True, False, True]


def test_rows_are_the_same_in_every_autoreset_mode():
    seen = {}
    for mode in MODES:
        task, policy, rollout = walk(mode, limit=4, bonus=True), valued([0.0, 1, 2, 3, 4]), FixedHorizon(3, 6)
        seen[mode] = [rows_of(rollout.collect([], context(task, policy, i))) for i in range(3)]
    assert seen["next_step"] == seen["same_step"] == seen["disabled"]
    rows = seen["disabled"][0]["tests/Walk-v0/env/0"]
    assert [state.index(1.0) for state, _, _ in rows] == [0, 1, 2, 3, 0, 1]
    assert {action for env in seen["disabled"][0].values() for _, action, _ in env} == {0, 1}


def test_reset_steps_give_no_row_and_the_number_of_rows_stays():
    # episodes of different lengths: in mode next_step the environments spend different numbers of steps on resetting
    policy = valued([float(i) for i in range(9)])
    whole = FixedHorizon(4, 40).collect([], context(walk("next_step", limit=3, extra_steps=5, bonus=True), policy))
    assert sum(len(segment.turns) for segment in whole) == 160
    for segment in whole:
        times = [turn.completion.observation["state"].argmax().item() for turn in segment.turns]
        assert times == list(range(times[0], times[0] + len(times)))
        assert segment.bootstrap_value == (0.0 if segment.ended == "done" else times[-1] + 1)
    assert {segment.ended for segment in whole} == {"done", "cut"}


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_is_scored_where_it_ends_over_all_its_segments(mode):
    task, policy, rollout = walk(mode, limit=7), valued([0.0] * 8), FixedHorizon(num_envs=1, horizon=3)
    iterations = [rollout.collect([], context(task, policy, iteration)) for iteration in range(3)]
    assert [[summary(s)[:2] for s in segments] for segments in iterations] == [
        [("cut", 3)],
        [("cut", 3)],
        [("done", 1), ("cut", 2)],
    ]
    last = iterations[2][0]
    assert last.info["scores"] == {"success": 1.0, "episode_return": 7.0, "episode_length": 7.0}
    assert task.score(last) == {**last.info["scores"], "return": 1.0}
    assert "scores" not in iterations[0][0].info
    assert rollout.metrics() == {"return_100": 7.0, "env_steps": 9.0, "sim_errors": 0.0}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["raise", "nan"])
def test_a_failing_env_ends_its_segment_and_is_counted(mode, fault, caplog):
    # the second decision of every episode fails: one row per episode, worth the state in which the failure happened
    task, policy = walk(mode, fault=fault), valued([0.0, 10.0, 20.0, 30.0])
    rollout = FixedHorizon(num_envs=1, horizon=3)
    segments = rollout.collect([], context(task, policy))
    assert [summary(s) for s in segments] == [("error", 1, 10.0), ("error", 1, 10.0), ("cut", 1, 10.0)]
    assert ("the floor gave way" if fault == "raise" else "not finite") in segments[0].info["error"]
    assert "scores" not in segments[0].info
    assert rollout.metrics() == {"env_steps": 5.0, "sim_errors": 2.0}
    assert "environment 0 of tests/Walk-v0 failed" in caplog.text
    with pytest.raises(RuntimeError, match=r"failed 3 times in iteration 1, more than rollout\.max_errors=2"):
        FixedHorizon(num_envs=1, horizon=9, max_errors=2).collect([], context(task, policy, 1))


def same(left, right) -> None:
    assert [(summary(s), s.group, s.info) for s in left] == [(summary(s), s.group, s.info) for s in right]
    for a, b in zip(left, right):
        for one, two in zip(a.turns, b.turns):
            assert one.reward == two.reward
            assert torch.equal(one.completion.observation["state"], two.completion.observation["state"])
            assert torch.equal(one.completion.action, two.completion.action)
            assert torch.equal(one.completion.behavior_logprobs, two.completion.behavior_logprobs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5"])
def test_going_on_from_a_checkpoint_is_the_same_run(name, mode, tmp_path):
    if name.startswith("Inverted"):
        pytest.importorskip("mujoco")
        policy = ControlPolicy(4, 1, kind="gaussian", low=-3.0, high=3.0)
    else:
        policy = ControlPolicy(4, 2)
    task, rollout = SimTask(GymSim(name, autoreset=mode)), FixedHorizon(num_envs=3, horizon=15)
    for iteration in range(3):
        rollout.collect([], context(task, policy, iteration))
    torch.save(rollout.state_dict(), tmp_path / "state.pt")
    again = FixedHorizon(num_envs=3, horizon=15)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for iteration in range(3, 6):
        expected = rollout.collect([], context(task, policy, iteration))
        same(again.collect([], context(task, policy, iteration)), expected)
        assert again.metrics() == rollout.metrics()
    assert any(segment.ended == "done" for segment in expected)


def test_a_checkpoint_before_the_first_iteration_and_right_after_a_resume():
    task, policy = SimTask(GymSim("CartPole-v1")), ControlPolicy(4, 2)
    fresh, loaded = FixedHorizon(2, 4), FixedHorizon(2, 4)
    loaded.load_state_dict(fresh.state_dict())
    first = fresh.collect([], context(task, policy))
    same(loaded.collect([], context(task, policy)), first)
    passed = FixedHorizon(2, 4)
    passed.load_state_dict(fresh.state_dict())
    twice = FixedHorizon(2, 4)
    twice.load_state_dict(passed.state_dict())
    same(twice.collect([], context(task, policy, 1)), fresh.collect([], context(task, policy, 1)))
    with pytest.raises(ValueError, match=r"rollout\.num_envs is 3, the checkpoint has 2 environments"):
        FixedHorizon(3, 4).load_state_dict(fresh.state_dict())


def test_a_simulator_that_cannot_be_saved_starts_new_episodes_and_says_so(caplog):
    task, policy, rollout = walk("disabled", limit=7), valued([0.0] * 8), FixedHorizon(1, 3)
    rollout.collect([], context(task, policy))
    rollout._env.venv.envs[0].unwrapped.handle = lambda: None  # as a library's handle would
    state = rollout.state_dict()
    again = FixedHorizon(1, 3)
    again.load_state_dict(state)
    segments = again.collect([], context(task, policy, 1))
    assert segments[0].turns[0].completion.observation["state"].argmax() == 0
    assert "this checkpoint has no simulator state" in caplog.text
    assert "the environments start new episodes" in caplog.text


def test_prompts_are_the_first_initial_states_and_later_episodes_differ():
    task, policy = SimTask(GymSim("CartPole-v1")), ControlPolicy(4, 2)
    segments = FixedHorizon(2, 80).collect([(0, task[5]), (1, task[6])], context(task, policy))
    starts = {key: rows[0][0] for key, rows in rows_of(segments).items()}
    for env, index in ((0, 5), (1, 6)):
        first, _ = gymnasium.make("CartPole-v1").reset(seed=task[index].info["seed"])
        assert starts[f"CartPole-v1/env/{env}"] == first.tolist()
    begun = [tuple(s.turns[0].completion.observation["state"].tolist()) for s in segments]
    assert len(set(begun)) == len(begun) > 4


def test_draws_depend_on_the_env_and_not_on_the_envs_beside_it():
    task, policy = walk("disabled", limit=4, bonus=True), valued([0.0] * 5)
    few = rows_of(FixedHorizon(1, 12).collect([], context(task, policy)))
    many = rows_of(FixedHorizon(3, 12).collect([], context(task, policy)))
    assert few["tests/Walk-v0/env/0"] == many["tests/Walk-v0/env/0"]
    assert many["tests/Walk-v0/env/0"] != many["tests/Walk-v0/env/1"]


def test_processes_share_out_the_envs_and_number_their_segments_as_one_process_does(monkeypatch):
    task, policy = walk("disabled", limit=4, bonus=True), valued([0.0] * 5)

    def collect(**where):
        prompts = [(slot, task[5 + slot]) for slot in range(2)][where.get("rank", 0) :: where.get("world_size", 1)]
        return FixedHorizon(3, 10).collect(prompts, context(task, policy, **where))

    whole, known = collect(), []
    monkeypatch.setattr(parallel, "gather", lambda own: known.extend(own) or own)
    for rank in range(2):
        collect(rank=rank, world_size=2)
    monkeypatch.setattr(parallel, "gather", lambda own: known)
    parts = [collect(rank=rank, world_size=2) for rank in range(2)]
    assert [sorted(rows_of(part)) for part in parts] == [
        ["tests/Walk-v0/env/0", "tests/Walk-v0/env/2"],
        ["tests/Walk-v0/env/1"],
    ]
    together = sorted((segment for part in parts for segment in part), key=lambda segment: segment.group)
    same(together, whole)
    assert [segment.group for segment in whole] == list(range(len(whole)))


def test_refusals():
    task, policy = walk("disabled"), valued([0.0] * 4)
    with pytest.raises(ValueError, match=r"rollout\.horizon must be at least 1"):
        FixedHorizon(horizon=0)
    with pytest.raises(
        ValueError, match=r"purpose 'eval'.*data\.evaluation\.rollout to mmrl\.rollouts\.env\.episodic\.EpisodicRollout"
    ):
        FixedHorizon().collect([], context(task, policy, purpose="eval"))
    with pytest.raises(ValueError, match=r"policy\.observation_dims=9"):
        FixedHorizon().collect([], context(task, ControlPolicy(9, 2)))
