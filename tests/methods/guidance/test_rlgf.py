"""A guide and the policy write parts of one completion: how long the parts are, and what is learned from them."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.rlgf import GuidedRollout, RollOutValue, _Row
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic()
SLOTS = [(3 * i, TASK[i]) for i in range(50)]


@pytest.fixture(scope="module")
def policies():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval(), decided(TextPolicy(config=TINY)).eval()


def context(policies, iteration=0, max_tokens=6):
    policy, guide = policies
    engine = LocalEngine()
    models = {"guide": guide}
    engine.load_models(models)
    engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(max_tokens=max_tokens), 0, iteration, group_size=2, models=models)


def masks(episode):
    done = episode.turns[0].completion
    return done.action_mask.tolist(), done.extra["value_mask"].tolist()


def test_without_mixing_ppo_plus_plus_is_ppo(policies):
    ctx = context(policies)
    guided, plain = GuidedRollout(mixing=0).collect(SLOTS, ctx), SingleTurn().collect(SLOTS, ctx)
    ours, theirs = collate(guided, ctx.policy), collate(plain, ctx.policy)
    assert ours.pop("value_mask")[ours["action_mask"]].all()
    assert set(ours) == set(theirs)
    for name in theirs:
        assert_close(ours[name], theirs[name], rtol=0, atol=0)
    assert [e.ended for e in guided] == [e.ended for e in plain]


@pytest.mark.parametrize("ppo_fraction", [1.0, 0.0])
def test_who_writes_which_tokens(policies, ppo_fraction):
    """t tokens of the roll-in, of 0.8 of the completions, then the roll-out; the policy's tokens are learned from."""
    ctx = context(policies)
    episodes = GuidedRollout(0.8, ppo_fraction).collect(SLOTS, ctx)
    assert [(e.group, e.sample_index) for e in episodes] == [(slot, k) for slot, _ in SLOTS for k in (0, 1)]
    lengths = [episode.info["roll_in"] for episode in episodes]
    assert 60 <= sum(t > 0 for t in lengths) <= 95 and max(lengths) < 6 and len(set(lengths)) > 3
    for episode, t in zip(episodes, lengths):
        chosen, valued = masks(episode)
        assert len(chosen) <= 6 and valued == [place >= t for place in range(len(chosen))]
        assert chosen == (valued if ppo_fraction else [not value for value in valued])
        assert episode.output == ctx.policy.decode(episode.turns[0].completion.action.tolist())
    batch = collate(episodes, ctx.policy)
    with torch.no_grad():
        out, guide = ctx.policy(batch), ctx.models["guide"](batch)
    own = batch["action_mask"]
    assert_close(out.logprobs[own], batch["behavior_logprobs"][own])  # in the context of what stands before
    assert (batch["behavior_logprobs"][~own] == 0).all()
    assert not torch.allclose(guide.logprobs[own], out.logprobs[own])
    assert batch["prompt_id"].unique().numel() == len(SLOTS)  # prompts are read once, whatever the guide wrote


def test_masks_of_five_tokens_with_a_roll_in_of_two(policies):
    """[0, 0, 1, 1, 1] in PPO++, [1, 1, 0, 0, 0] in AggreVaTeD; the reward is given at the policy's last token."""
    ctx = context(policies, max_tokens=5)
    for ppo_fraction, expected in ((1.0, [False, False, True, True, True]), (0.0, [True, True, False, False, False])):
        many = GuidedRollout(1.0, ppo_fraction).collect(SLOTS, ctx)
        found = [e for e in many if e.info["roll_in"] == 2 and len(e.turns[0].completion.action) == 5]
        assert found and {tuple(masks(e)[0]) for e in found} == {tuple(expected)}
        batch = collate([replace(found[0], reward=1.0)], ctx.policy)
        batch = batch.with_columns(values=torch.zeros(1, 5))
        advantages = GAE(gamma=1.0, gae_lambda=1.0)(batch, ctx)["advantages"]
        assert advantages[0].tolist() == [float(chosen) for chosen in expected]


def test_iterations_are_drawn(policies):
    """ppo_fraction 0.5: some iterations are of one kind, some of the other, and none of both."""
    kinds = []
    for iteration in range(12):
        ctx = context(policies, iteration)
        rows = GuidedRollout(1.0, 0.5).collect(SLOTS[:4], ctx)
        kinds.append({masks(e)[0][0] for e in rows if e.info["roll_in"]})
    assert all(len(kind) == 1 for kind in kinds) and len(set.union(*kinds)) == 2


def test_the_value_is_fitted_in_the_states_of_the_roll_out():
    # R = 1, values .5 and 0 inside: (.25 + 1) / 2 / 2 = .3125
    batch = Batch(value_mask=torch.tensor([[False, True, True]]), episode_reward=torch.tensor([1.0]))
    values = torch.tensor([[9.0, 0.5, 0.0]], requires_grad=True)
    loss = RollOutValue()(PolicyOutput(values, values, values), batch)
    assert_close(loss, torch.tensor([0.3125]))
    loss.sum().backward()
    assert_close(values.grad, torch.tensor([[0.0, -0.25, -0.5]]))


def test_the_values_of_forced_tokens_are_predicted(policies):
    """Also after the last token of the policy, where nothing else is scored."""
    ctx = context(policies)
    torch.manual_seed(1)
    critic = TextPolicy(config=TINY, value_head=True).eval()
    torch.nn.init.normal_(critic.value_head.weight)
    batch = collate(GuidedRollout(1.0, 0.0).collect(SLOTS[:5], ctx), ctx.policy)
    with torch.no_grad():
        values = critic(batch).values
    assert (batch["value_mask"] & ~batch["action_mask"]).any()
    assert (values[batch["value_mask"]] != 0).all()


def test_refusals(policies):
    for wrong in ({"mixing": 1.5}, {"ppo_fraction": -0.1}):
        with pytest.raises(ValueError, match=r"rollout\."):
            GuidedRollout(**wrong)
    with pytest.raises(ConfigError, match=r"GuidedRollout of data samples from \['teacher'\].*model\.frozen_models"):
        CLI(to_lightning(compose(["recipe=rlgf", "+rollout.guide=teacher"])), build=False)
    with pytest.raises(ValueError, match="value_head"):
        RollOutValue()(PolicyOutput(torch.zeros(1, 1), torch.zeros(1, 1)), Batch(episode_reward=torch.zeros(1)))


def test_an_empty_prefix_forces_nothing(policies):
    row = _Row(0, TASK[0], 0, context(policies))
    assert row.request("policy", torch.zeros(0, dtype=torch.long)).prefix is None
    assert row.request("policy", torch.tensor([3, 4])).prefix.tolist() == [3, 4]
