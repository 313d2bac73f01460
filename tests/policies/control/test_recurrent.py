"""A policy with a memory: sequences by hand, the gradient through time by a loop over cells, and how it is played."""

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import mmrl
from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.control.recurrent import RecurrentPolicy, find_sequences
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.memory import MemorySim
from mmrl.rollouts.env.recurrent import RecurrentEpisodic, RecurrentFixedHorizon
from sims.gym import GymSim
from sims.task import SimTask
from tests.tiny_recipes import fit

KINDS = ["lstm", "gru"]


def build_policy(recurrence="lstm", **options) -> RecurrentPolicy:
    torch.manual_seed(0)
    options = {"observation_dims": 3, "actions": 4, **options}
    return RecurrentPolicy(recurrence=recurrence, memory_size=5, hidden=[6], **options)


def test_sequences_by_hand():
    """Rows of episode 7: steps 2, 0, 1 and 5; of episode 3: step 4."""
    rows = find_sequences(torch.tensor([7, 7, 3, 7, 7]), torch.tensor([2, 0, 4, 1, 5]))
    assert rows.tolist() == [[2, -1, -1], [1, 3, 0], [4, -1, -1]]


def sequences(policy) -> Batch:
    """Three sequences of 4, 1 and 3 rows in a random order; only first rows have a memory that may be read."""
    generator = torch.Generator().manual_seed(1)
    episode, step = torch.tensor([0, 0, 0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 2, 3, 6, 2, 3, 4])
    memory = torch.randn(8, policy.memory_dims, generator=generator)
    memory[[1, 2, 3, 6, 7]] = torch.nan
    batch = Batch(
        **{"obs.state": torch.randn(8, 3, generator=generator), "obs.memory": memory},
        action=torch.randint(4, (8, 1), generator=generator),
        temperature=torch.ones(8),
        episode=episode,
        step=step,
    )
    return batch.select(torch.randperm(8, generator=generator))


@pytest.mark.parametrize("recurrence", KINDS)
def test_the_gradient_through_time_is_that_of_a_loop_over_cells(recurrence):
    policy = build_policy(recurrence)
    policy.whole_sequences = True
    with torch.no_grad():  # where the first weights are small, so are gradients
        policy.head.linear.weight.normal_()
    batch = sequences(policy)
    out = policy(batch)
    factor = torch.linspace(-1, 1, 8)
    loss = (factor * out.logprobs[:, 0]).sum() + (factor**2 * out.values).sum() + out.entropy[:, 0] @ factor
    gradients = torch.autograd.grad(loss, list(policy.parameters()))

    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[recurrence](3, 5)
    names = {"weight_ih": "weight_ih_l0", "weight_hh": "weight_hh_l0", "bias_ih": "bias_ih_l0", "bias_hh": "bias_hh_l0"}
    for name, stored in names.items():
        setattr(cell, name, getattr(policy.memory, stored))
    place = {(int(e), int(s)): row for row, (e, s) in enumerate(zip(batch["episode"], batch["step"]))}
    expected = torch.tensor(0.0)
    for episode, steps in {0: range(4), 1: range(6, 7), 2: range(2, 5)}.items():
        first = batch["obs.memory"][place[episode, steps[0]]][None]
        state = tuple(first.chunk(2, dim=-1)) if recurrence == "lstm" else first
        for step in steps:
            row = place[episode, step]
            state = cell(batch["obs.state"][row][None], state)
            h = state[0] if recurrence == "lstm" else state
            logprobs = policy.head.linear(policy.actor(h)).log_softmax(-1)[0]
            value = policy.value_net(policy.critic(h))[0, 0]
            assert_close(out.logprobs[row, 0], logprobs[batch["action"][row, 0]])
            assert_close(out.values[row], value)
            entropy = -(logprobs.exp() * logprobs).sum()
            expected = expected + factor[row] * (logprobs[batch["action"][row, 0]] + entropy) + factor[row] ** 2 * value
    for part, other in zip(gradients, torch.autograd.grad(expected, list(policy.parameters()))):
        assert_close(part, other, atol=1e-5, rtol=1e-4)


def maze(length=2, **options) -> SimTask:
    return SimTask(GymSim("sims.memory:TMaze-v0", kwargs={"length": length}, **options))


def context(task, policy, **options) -> Context:
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(task, engine, policy, Sampling(), seed=7, **{"iteration": 0, **options})


@pytest.mark.parametrize("recurrence", KINDS)
def test_decisions_are_scored_as_they_were_made_over_cuts_and_ends(recurrence):
    """Unrolled sequences have the log-probs and values of step-by-step acting; the memory is empty at each start."""
    policy, rollout = build_policy(recurrence), RecurrentFixedHorizon(num_envs=3, horizon=9)
    policy.head.linear.weight.data.normal_()
    last: dict[str, torch.Tensor] = {}
    goes_on, ends = 0, set()
    for iteration in range(3):
        segments = rollout.collect([], context(maze(1, max_episode_steps=12), policy, iteration=iteration))
        batch = collate(segments, policy)
        with torch.no_grad():
            out = policy(batch)
        assert_close(out.logprobs, batch["behavior_logprobs"])
        assert_close(out.values, batch["values"])
        for segment in segments:
            memory = segment.turns[0].completion.observation["memory"]
            before = last.pop(segment.prompt.key, torch.zeros(policy.memory_dims))
            assert_close(memory, before)
            goes_on += bool(before.any())
            if segment.ended == "cut":
                last[segment.prompt.key] = segment.following["memory"]
            if segment.ended != "done":  # worth what the unrolled network says of what follows
                value = policy.predict_values({name: part[None] for name, part in segment.following.items()})
                assert_close(value[0].item(), segment.bootstrap_value)
            ends.add(segment.ended)
    assert goes_on >= 3 and "cut" in ends and ends & {"done", "time"}


def test_whole_episodes_begin_with_an_empty_memory_and_depend_on_the_first_observation():
    policy = build_policy()
    task = maze().on("held_out")
    prompts = [(slot, task[slot]) for slot in range(6)]
    episodes = RecurrentEpisodic(max_envs=4).collect(prompts, context(task, policy, purpose="eval"))
    for episode in episodes:
        memories = [turn.completion.observation["memory"] for turn in episode.turns]
        assert not memories[0].any() and all(memory.any() for memory in memories[1:])
    # at the junction the two signals are still told apart
    signal = {(0, 1, 1): 0, (1, 1, 0): 1}
    sides = {signal[tuple(map(int, episode.turns[0].completion.observation["state"]))] for episode in episodes}
    assert sides == {0, 1}


def test_the_maze_by_its_best_plays():
    """East to the junction, then by the signal: 4. A turn to the wrong side or a wall costs 0.1."""
    env = gymnasium.make("sims.memory:TMaze-v0", length=3)
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        right = 0 if observation.tolist() == [0, 1, 1] else 2
        assert env.step(3)[1] == env.step(right)[1] == -0.1  # walls
        for place in range(3):
            observation, reward, *_ = env.step(1)
            assert reward == 0 and observation.tolist() == ([0, 1, 0] if place == 2 else [1, 0, 1])
        turn = right if seed % 2 else 2 - right
        _, reward, terminated, _, _ = env.step(turn)
        assert terminated and reward == (4.0 if seed % 2 else -0.1)
    with pytest.raises(ValueError, match="at least 1"):
        gymnasium.make("sims.memory:TMaze-v0", length=0)


SMALL = (
    "recipe=ppo_recurrent",
    "sim.kwargs.length=1",
    "policy.memory_size=4",
    "policy.hidden=[4]",
    "rollout.num_envs=3",
    "rollout.horizon=8",
    "data.update_epochs=2",
    "data.num_minibatches=2",
    "data.evaluation.count=2",
    "model.scheduler=null",
)


def test_a_resumed_run_is_the_uninterrupted_one_and_the_policy_acts_in_its_environment(tmp_path):
    whole = fit(tmp_path / "whole", *SMALL, "trainer.max_epochs=3")
    fit(tmp_path / "first", *SMALL, "trainer.max_epochs=2")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *SMALL, "trainer.max_epochs=3", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    count = len(resumed["metrics"])
    assert 0 < count < len(whole["metrics"])
    assert_close(resumed["metrics"], whole["metrics"][-count:], atol=0, rtol=0, equal_nan=True)
    # the same decisions by `predict` in gymnasium's environment and by `act` in the run's
    policy = mmrl.load_policy(tmp_path / "whole", decode="argmax")
    outer, inner, state = gymnasium.make("sims.memory:TMaze-v0", length=1), policy.make_env(), None
    seen, observed = outer.reset(seed=5)[0], inner.reset(seed=5)[0]
    for _ in range(6):
        action, state = policy.predict(seen, state=state)
        assert isinstance(action, int) and state.shape == (8,) and state.any()
        output = policy.act(observed)
        assert output[0] == action
        assert_close(output[1:], state)
        seen, _, over, *_ = outer.step(action)
        observed, _, ended, *_ = inner.step(output)
        assert over == ended
        if over:
            break


@pytest.mark.parametrize("kind, actions", [("gaussian", 2), ("multi_categorical", [2, 3])])
def test_other_actions_stand_before_the_memory(kind, actions):
    policy = build_policy(kind=kind, actions=actions)
    observation = {"state": torch.randn(4, 3), "memory": torch.zeros(4, 10)}
    done = policy.act(observation, Sampling(), Noise(range(4)))
    action, memory = policy.split_output(done.output[0])
    expected = done.action[0, 0]
    assert_close(torch.as_tensor(action), expected.clamp(-1, 1) if kind == "gaussian" else expected)
    assert memory.shape == (10,) and done.output[0].dtype == np.float32


def test_a_saved_policy_is_the_same(tmp_path):
    policy = build_policy("gru")
    policy.save_pretrained(tmp_path)
    observation = {"state": torch.randn(4, 3), "memory": torch.randn(4, 5)}
    loaded = RecurrentPolicy(path=str(tmp_path))
    assert torch.equal(loaded.predict_values(observation), policy.predict_values(observation))


def test_refusals():
    policy = build_policy()
    with pytest.raises(ValueError, match="learner=sequences"):
        policy(sequences(policy))
    with pytest.raises(ValueError, match="rollout=recurrent"):
        FixedHorizon(num_envs=1, horizon=2).collect([], context(maze(), policy))
    with pytest.raises(ValueError, match="rollout=recurrent"):
        policy.encode({"state": np.zeros(3)})
    with pytest.raises(ValueError, match=r"has shape \(4,\), the policy reads \(10,\)"):
        policy.encode({"state": np.zeros(3), "memory": np.zeros(4)})
    with pytest.raises(ValueError, match=r"sim\.autoreset=disabled"):
        MemorySim(GymSim("CartPole-v1", autoreset="same_step"), 4).make(1)
    with pytest.raises(ValueError, match=r"policy\.memory_size"):
        RecurrentPolicy(3, 2, memory_size=0)
    # without a memory it is the rollout that it extends
    plain = ControlPolicy(3, 4, hidden=[4])
    segments = RecurrentFixedHorizon(num_envs=2, horizon=4).collect([], context(maze(), plain))
    assert "memory" not in segments[0].turns[0].completion.observation
