"""B-Coder's losses by hand, where the two targets lead, and every loss of logged texts by loops over transformers."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Prompt, Sampling
from mmrl.methods.offline.b_coder.losses import (
    AdvantageMagnitude,
    CheckpointChoices,
    ConservativeBellman,
    ValueBellman,
    dueling_q,
    recovered_rewards,
    squash_value,
)
from mmrl.methods.offline.b_coder.policy import DuelingPolicy
from mmrl.methods.offline.b_coder.programs import RecoveredReturns
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, batch_of, completions, decided

LAWS = [
    Example(ConservativeBellman(conservative=False)),
    Example(ConservativeBellman(0.9, 0.5)),
    Example(CheckpointChoices(rows=3), scores=True),
]
PROMPTS = [Prompt(f"p/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(["go", "turn left or", "a"])]


def unsquash(value: float, r_max: float = 1.0) -> float:
    """x with R_max - log(1 + exp(-x)) = value."""
    return -math.log(math.expm1(r_max - value))


def make_policy(**options) -> DuelingPolicy:
    torch.manual_seed(0)
    policy = decided(DuelingPolicy(config=dict(TINY), hidden=8, **options)).eval()
    with torch.no_grad():
        for weight in (*policy.networks.base.parameters(), *policy.networks.residual.parameters()):
            weight.normal_(std=0.3)
    return policy


def two_choices(values, logits, action, reward, choice):
    """One row of two choices: output and batch, with base values that squash to `values`."""
    logits = torch.tensor([logits])
    zeros = torch.zeros(1, 2)
    base = torch.tensor([[unsquash(v) for v in values]])
    extra = {"relative_logits": logits - logits.amax(-1, keepdim=True), "base_values": base, "residual_values": zeros}
    batch = Batch(
        action=torch.tensor([action]),
        action_mask=torch.ones(1, 2).bool(),
        episode_reward=torch.tensor([reward]),
        checkpoint_choice=torch.tensor([choice]),
        checkpoint_values=base,
    )
    return PolicyOutput(zeros, zeros, None, extra), batch


def test_the_dueling_q_function_by_hand():
    """l = (2, 1, -1), alpha .5, V = .4: Q = .4 + .5 (0, -1, -3) = (.4, -.1, -1.1); softmax(Q / .5) = softmax(l)."""
    logits = torch.tensor([2.0, 1.0, -1.0])
    relative = (logits - logits.max()).expand(3, 3)
    q = dueling_q(relative, torch.tensor(0.4), torch.arange(3), 0.5)
    assert_close(q, torch.tensor([0.4, -0.1, -1.1]))
    assert_close((q / 0.5).softmax(-1), logits.softmax(-1))


def test_values_stay_below_the_largest_return():
    """x = 0: 1 - log 2 = .306853; a large x comes near to 1, and a very negative one is 1 + x."""
    values = squash_value(torch.tensor([0.0, 12.0, -30.0]), 1.0)
    assert_close(values, torch.tensor([0.306853, 0.999994, -29.0]), atol=1e-6, rtol=0)
    assert (values < 1).all()


def test_the_two_targets_by_hand():
    """Next Q = (.3, .6, .1), the checkpoint likes token 0, gamma .999: .999 * .3 = .2997, the ordinary one .5994.

    alpha 1 and V' = .6: l' = (-.3, 0, -.5). Q(s, a) = .5 at the first choice: (.2997 - .5)^2 = .040120 and
    (.5994 - .5)^2 = .009880. The last choice has the reward 1 as its target: token 1 of Q = .6, (1 - .6)^2 = .16.
    """
    out, batch = two_choices((0.5, 0.6), [[0.0, -1.0, -1.0], [-0.3, 0.0, -0.5]], [0, 1], 1.0, [2, 0])
    assert_close(ConservativeBellman()(out, batch), torch.tensor([[0.040120, 0.16]]), atol=2e-6, rtol=0)
    ordinary = ConservativeBellman(conservative=False)(out, batch)
    assert_close(ordinary, torch.tensor([[0.009880, 0.16]]), atol=2e-6, rtol=0)
    assert_close(ValueBellman()(out, batch), ordinary)  # the same state value where nothing is residual
    shifted = replace(out, extra={**out.extra, "residual_values": torch.full((1, 2), 0.1)})
    assert not torch.allclose(ConservativeBellman()(shifted, batch), ConservativeBellman()(out, batch))
    assert_close(ValueBellman()(shifted, batch), ordinary)


def with_gap():
    """The two choices above with one between them that was forced, and without a second reward after the last.

    Row 1 has the choices 1 and 3, row 2 the choices 1 and 2. What is outside the mask is no number.
    """
    nan, far = torch.nan, [-0.3, 0.0, -0.5]
    mask = torch.tensor([[True, False, True], [True, True, False]])
    logits = torch.tensor([[[0.0, -1.0, -1.0], [-2.0, 0.0, 0.0], far], [[0.0, -1.0, -1.0], far, [-2.0, 0.0, 0.0]]])
    base = torch.tensor([[unsquash(0.5), nan, unsquash(0.6)], [unsquash(0.5), unsquash(0.6), nan]])
    zeros = torch.zeros(2, 3)
    extra = {"relative_logits": logits, "base_values": base.requires_grad_(), "residual_values": zeros}
    batch = Batch(
        action=torch.tensor([[0, 0, 1], [0, 1, 0]]),
        action_mask=mask,
        episode_reward=torch.ones(2),
        checkpoint_choice=torch.tensor([[2, 0, 0], [2, 0, 0]]),
        checkpoint_values=base.detach(),
    )
    return PolicyOutput(zeros, zeros, None, extra), batch


def test_forced_choices_are_passed_over():
    """Losses as in `test_the_two_targets_by_hand`, where the next choice and the reward's are those inside the mask."""
    out, batch = with_gap()
    ordinary = torch.tensor([[0.009880, 0.0, 0.16], [0.009880, 0.16, 0.0]])
    assert_close(ValueBellman()(out, batch).detach(), ordinary, atol=2e-6, rtol=0)
    conservative = torch.tensor([[0.040120, 0.0, 0.16], [0.040120, 0.16, 0.0]])
    assert_close(ConservativeBellman()(out, batch), conservative, atol=2e-6, rtol=0)
    metric = ValueBellman().metrics(out, batch)["v"]
    assert_close(metric, torch.tensor([[0.5, 0.0, 0.6], [0.5, 0.6, 0.0]]))
    assert not metric.requires_grad
    # the base value of a forced choice is 0, which is squashed to 1 - log 2
    values = ConservativeBellman().predict_values(out, batch)
    assert_close(values, torch.tensor([[0.5, 0.306853, 0.6], [0.5, 0.6, 0.306853]]), atol=1e-6, rtol=0)


def test_forced_choices_have_no_advantage():
    """Token 1 is 1 below the best one, token 2 of the last choice .5; a forced token is left out."""
    out, batch = with_gap()
    batch = batch.with_columns(action=torch.tensor([[1, 0, 2], [0, 2, 0]]))
    assert_close(AdvantageMagnitude()(out, batch), torch.tensor([[1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]))


def test_recovered_returns_are_sums_over_the_choices():
    """Q = .5 and .6 with V' = .6, gamma .999: .5 - .5994 + .6 = .5006, as if the forced choice were not there."""
    out, batch = with_gap()
    returns = RecoveredReturns().sum_rewards(out, batch)
    assert_close(returns, torch.tensor([0.5006, 0.5006]), atol=2e-6, rtol=0)


def test_values_stop_at_the_last_choice():
    policy = make_policy()
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, Sampling(max_tokens=5)))
    batch["action_mask"][0, 2:] = False
    with torch.no_grad():
        out = policy(batch)
    for name in ("base_values", "residual_values"):
        assert (out.extra[name][0, :2] != 0).all() and (out.extra[name][0, 2:] == 0).all()
    assert DuelingPolicy.predicts({"statistics": ["entropy"]}) == {
        *("entropy", "relative_logits", "base_values", "residual_values")
    }


def test_the_advantage_of_right_programs_by_hand():
    """l = (0, -1, -1) and (-.3, 0, -.5), tokens 2 and 0, alpha .5: .5 and .15."""
    out, batch = two_choices((0.5, 0.6), [[0.0, -1.0, -1.0], [-0.3, 0.0, -0.5]], [2, 0], 1.0, [0, 0])
    assert_close(AdvantageMagnitude(0.5)(out, batch), torch.tensor([[0.5, 0.15]]))


def test_recovered_rewards_by_hand():
    """Q = (.5, .6, .9), V = (.5, .55, .8), gamma .999: .5 - .54945, .6 - .7992 and .9, in sum .65135.

    A choice outside the mask is passed over: without the second one .5 - .7992 and .9.
    """
    q, values = torch.tensor([[0.5, 0.6, 0.9]]), torch.tensor([[0.5, 0.55, 0.8]])
    rewards = recovered_rewards(q, values, torch.ones(1, 3).bool(), 0.999)
    assert_close(rewards, torch.tensor([[-0.04945, -0.1992, 0.9]]))
    assert_close(rewards.sum(), torch.tensor(0.65135))
    gap = recovered_rewards(q, values, torch.tensor([[True, False, True]]), 0.999)
    assert_close(gap, torch.tensor([[-0.2992, 0.0, 0.9]]))


def test_the_conservative_target_stays_at_the_checkpoints_return_where_the_ordinary_one_overestimates():
    """Ten choices, the reward 0 at the end, and a value of .9 that nothing in the log corrects at one token.

    The log takes token 0, which is the checkpoint's choice too. A_0 = -.5, A_1 = 0: the ordinary target of V + A_0 is
    gamma V', the conservative one gamma (V' - .5). The last choice has Q = 0, so V = .5. Before it Q_t = y_t at the
    optimum: V_t = .5 + gamma V_{t+1} grows towards .5 / (1 - gamma) = 5, and V_t = .5 (1 - gamma) + gamma V_{t+1} stays
    at .5, where Q is the return of the log, 0.
    """
    gamma, length = 0.9, 10
    mask = torch.ones(1, length).bool()
    relative = torch.tensor([-0.5, 0.0]).expand(1, length, 2)
    zeros = torch.zeros(1, length)
    batch = Batch(
        action=zeros.long(),
        action_mask=mask,
        episode_reward=torch.zeros(1),
        checkpoint_choice=zeros.long(),
        checkpoint_values=zeros,
    )
    for conservative in (True, False):
        term = ConservativeBellman(gamma, r_max=20.0, conservative=conservative)
        residual = torch.zeros(1, length, requires_grad=True)
        optimizer = torch.optim.Adam([residual], lr=0.3)
        for _ in range(400):
            out = PolicyOutput(zeros, zeros, None, {"relative_logits": relative, "residual_values": residual})
            optimizer.zero_grad()
            term(out, batch).sum().backward()
            optimizer.step()
        values = term.predict_values(PolicyOutput(zeros, zeros, None, {"residual_values": residual}), batch)[0]
        expected = [0.5]
        for _ in range(length - 1):
            expected.append(gamma * expected[-1] + 0.5 * (1 - gamma if conservative else 1))
        assert_close(values.detach(), torch.tensor(expected[::-1]), atol=0.02, rtol=0)


def test_the_losses_of_logged_texts_are_those_of_loops_over_tokens():
    """States and logits by transformers, one row without padding at a time; the reference has other weights."""
    policy, reference = make_policy(), make_policy()
    with torch.no_grad():
        reference.model.get_input_embeddings().weight.add_(
            0.1 * torch.randn_like(policy.model.get_input_embeddings().weight)
        )
    done = completions(policy, PROMPTS, Sampling(max_tokens=5))
    batch = batch_of(policy, PROMPTS, done).with_columns(episode_reward=torch.tensor([1.0, -0.3, -1.0]))
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, models={"reference": reference})
    batch = CheckpointChoices(rows=2)(batch, ctx)
    gamma, alpha = 0.9, 0.5
    with torch.no_grad():
        out = policy(batch)
    first, second = ValueBellman(gamma, alpha)(out, batch), ConservativeBellman(gamma, alpha)(out, batch)
    for row, completion in enumerate(done):
        logits, states = score_alone(policy, completion)
        frozen_logits, frozen_states = score_alone(reference, completion)
        nets = policy.networks
        with torch.no_grad():
            residual = (nets.residual(states) - nets.residual_start(states))[:, 0]
            base, frozen_base = nets.base(states)[:, 0], reference.networks.base(frozen_states)[:, 0]
        n = len(completion.action)
        for loss, x, stars in (
            (first, base, logits.argmax(-1)),
            (second, frozen_base + residual, frozen_logits.argmax(-1)),
        ):
            v = [1 - math.log1p(math.exp(-float(each))) for each in x]
            for t in range(n):
                q = alpha * float(logits[t, completion.action[t]] - logits[t].max()) + v[t]
                target = float(batch["episode_reward"][row])
                if t + 1 < n:
                    star = alpha * float(logits[t + 1, stars[t + 1]] - logits[t + 1].max())
                    target = gamma * (star + v[t + 1])
                assert float(loss[row, t]) == pytest.approx((target - q) ** 2, rel=2e-3, abs=2e-4)
        assert (loss[row, n:] == 0).all()
    assert (batch["checkpoint_choice"] != out.extra["relative_logits"].argmax(-1)).any()  # two models


def score_alone(policy, completion):
    """Logits [T, V] and states [T, D] before the tokens of a completion."""
    ids = torch.cat([completion.observation["input_ids"], completion.action])[None]
    with torch.no_grad():
        out = policy.model(input_ids=ids, output_hidden_states=True)
    at = slice(-len(completion.action) - 1, -1)
    logits = out.logits[0, at].index_fill(-1, torch.tensor(policy.forbidden, dtype=torch.long), -1e9)
    return logits, out.hidden_states[-1][0, at]


def test_refusals():
    with pytest.raises(ValueError, match=r"ValueBellman\.gamma"):
        ValueBellman(1.5)
    with pytest.raises(ValueError, match=r"AdvantageMagnitude\.alpha"):
        AdvantageMagnitude(0.0)
    batch = Batch(prompt_id=torch.zeros(1).long(), action=torch.zeros(1, 1).long())
    nothing = torch.zeros(1, 1)
    plain = torch.nn.Module()
    plain.forward = lambda rows: PolicyOutput(nothing, nothing)
    ctx = Context(None, None, plain, Sampling(), seed=0, iteration=0, models={"reference": plain})
    with pytest.raises(ValueError, match="DuelingPolicy"):
        CheckpointChoices()(batch, ctx)
