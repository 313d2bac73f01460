"""Expected gradients on a chain of two states, by enumerating every episode, against closed forms.

In state 0 one stops for reward 0.5, or pays 0.2 and goes on to state 1, where either choice ends with 1 or -0.5. The
episode is laid out twice: as rows of one decision each (robot), and as one row of several choices (text).
"""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from mmrl.ops.logprob import logprob_entropy

LOGITS = torch.tensor([[0.3, -0.4], [0.8, 0.1]], dtype=torch.float64)  # [state, choice]
STOP, GO = 0.5, -0.2
END = torch.tensor([1.0, -0.5], dtype=torch.float64)  # rewards of the two choices in state 1
PATHS = [[0], [1, 0], [1, 1]]  # choices, from state 0 on
REWARDS = [[STOP], [GO, 1.0], [GO, -0.5]]
CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
WRONG = (0.9, -0.7)  # values of an untrained critic


def chances(logits):
    p = logits.softmax(-1)
    return torch.stack([p[0, 0], p[0, 1] * p[1, 0], p[0, 1] * p[1, 1]])


def true_values(gamma):
    p = LOGITS.softmax(-1)
    v1 = (p[1] * END).sum()
    return (p[0, 0] * STOP + p[0, 1] * (GO + gamma * v1)).item(), v1.item()


def as_rows(values):
    """One row per decision: [5, 1], values per row."""
    flat = [(e, s, a) for e, path in enumerate(PATHS) for s, a in enumerate(path)]
    return Batch(
        episode=torch.tensor([e for e, _, _ in flat]),
        step=torch.tensor([s for _, s, _ in flat]),
        action=torch.tensor([[a] for _, _, a in flat]),
        state=torch.tensor([[s] for _, s, _ in flat]),
        reward=torch.tensor([REWARDS[e][s] for e, s, _ in flat]),
        values=torch.tensor([values[s] for _, s, _ in flat]),
        is_last=torch.tensor([s == len(PATHS[e]) - 1 for e, s, _ in flat]),
        bootstrap_value=torch.zeros(5),
        action_mask=torch.ones(5, 1).bool(),
    )


def as_choices(values):
    """One row per episode with a forced choice between its two: [3, 3], values per choice.

    A row has one reward, at its end, so this layout equals the other one only without intermediate rewards:
    the price of going on is taken into the end, which is the same return at gamma 1.
    """
    mask = torch.tensor([[1, 0, 0], [1, 0, 1], [1, 0, 1]]).bool()
    return Batch(
        episode=torch.arange(3),
        step=torch.zeros(3).long(),
        action=torch.tensor([[0, 0, 0], [1, 0, 0], [1, 0, 1]]),
        state=torch.tensor([[0, 0, 1]] * 3),
        reward=torch.tensor([sum(rewards) for rewards in REWARDS]),
        values=torch.tensor([[values[0], 9.0, values[1]]] * 3),
        is_last=torch.ones(3).bool(),
        bootstrap_value=torch.zeros(3),
        action_mask=mask,
    )


def expected_gradient(batch, term, gamma, gae_lambda):
    """d/dlogits of the sum over episodes of chance times the loss of all its choices."""
    logits = LOGITS.clone().requires_grad_()
    batch = GAE(gamma, gae_lambda)(batch, CTX)
    out = PolicyOutput(*logprob_entropy(logits[batch["state"]], batch["action"]))
    weights = torch.where(batch["action_mask"], chances(LOGITS)[batch["episode"]][:, None], 0)
    batch = batch.with_columns(behavior_logprobs=out.logprobs.detach(), loss_weights=weights)
    return torch.autograd.grad(Objective({"policy": term})(out, batch)[0], logits)[0]


def closed_form(first, second):
    """-sum_s d(s) sum_a dp(a | s) A(s, a), with d(0) = 1 and d(1) = p(go on)."""
    logits = LOGITS.clone().requires_grad_()
    p = logits.softmax(-1)
    first, second = (torch.as_tensor(advantage, dtype=torch.float64) for advantage in (first, second))
    return torch.autograd.grad(-(p[0] * first).sum() - p[0, 1].detach() * (p[1] * second).sum(), logits)[0]


terms = pytest.mark.parametrize(
    "term", [PolicyGradient(), ClippedSurrogate(), ClippedSurrogate(clip_dual=3.0)], ids=str
)


@terms
@pytest.mark.parametrize("gamma, gae_lambda", [(1.0, 1.0), (0.9, 0.95), (0.9, 0.5), (0.7, 0.0)])
@pytest.mark.parametrize("wrong", [False, True], ids=["true values", "wrong values"])
def test_decisions(term, gamma, gae_lambda, wrong):
    """E[A | 0, go] = GO + gamma V1 - V0 + gamma lambda (E[END] - V1): the last part is 0 for true values."""
    v0, v1 = WRONG if wrong else true_values(gamma)
    p1 = LOGITS.softmax(-1)[1]
    on = GO + gamma * v1 - v0 + gamma * gae_lambda * ((p1 * END).sum().item() - v1)
    out = expected_gradient(as_rows((v0, v1)), term, gamma, gae_lambda)
    assert_close(out, closed_form([STOP - v0, on], END - v1), rtol=1e-6, atol=1e-7)


@terms
@pytest.mark.parametrize("layout", [as_rows, as_choices])
@pytest.mark.parametrize("values, gae_lambda", [(WRONG, 1.0), (true_values(1.0), 1.0), (true_values(1.0), 0.3)])
def test_undiscounted_it_is_the_gradient_of_the_expected_return(term, layout, values, gae_lambda):
    """At gamma 1 with gae_lambda 1 whatever the values, or with true values whatever the gae_lambda."""
    if layout is as_choices and gae_lambda < 1:
        # paying GO at the end makes it part of state 1's value
        values = (values[0], values[1] + GO)
    logits = LOGITS.clone().requires_grad_()
    rewards = torch.tensor([sum(path) for path in REWARDS], dtype=torch.float64)
    expected = torch.autograd.grad(-(chances(logits) * rewards).sum(), logits)[0]
    assert_close(expected_gradient(layout(values), term, 1.0, gae_lambda), expected, rtol=1e-6, atol=1e-7)


def test_cut_off_after_the_first_decision():
    """Truncated in state 1, bootstrapped from its true value: state 0 learns what it learns from whole episodes."""
    v0, v1 = true_values(0.9)
    whole = expected_gradient(as_rows((v0, v1)), PolicyGradient(), 0.9, 0.95)
    rows = as_rows((v0, v1))
    rows = rows.select((rows["step"] == 0).nonzero().flatten())
    bootstrap = torch.tensor([0.0, v1, v1])
    cut = expected_gradient(
        rows.with_columns(is_last=torch.ones(3).bool(), bootstrap_value=bootstrap), PolicyGradient(), 0.9, 0.95
    )
    assert_close(cut[0], whole[0], rtol=1e-6, atol=1e-7)
    assert (cut[1] == 0).all()
    # taken for an end, it would be another gradient
    terminal = rows.with_columns(is_last=torch.ones(3).bool(), bootstrap_value=torch.zeros(3))
    assert (expected_gradient(terminal, PolicyGradient(), 0.9, 0.95)[0] - whole[0]).abs().max() > 0.01
