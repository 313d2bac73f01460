"""On-policy samples and negative gradients: the paper's gradients by hand, and what they do on its bandit."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.preferences.on_policy_negative import PreferredLikelihood
from mmrl.objectives.objective import Objective
from mmrl.objectives.preference import DPOLoss
from tasks.bandit import Bandit
from tests.laws.example import Example
from tests.tasks.replies import reply

LAWS = [Example(PreferredLikelihood()), Example(PreferredLikelihood(0.5))]

HARD = Bandit(best=70, data=20)
PAY = torch.tensor([HARD.pay(arm) for arm in range(100)], dtype=torch.float64)


def pairs(first: Tensor, second: Tensor, weights: Tensor, reference: Tensor) -> Batch:
    """Rows of one choice: pairs of arms whose better one is preferred."""
    better, worse = torch.where(PAY[first] > PAY[second], torch.stack([first, second]), torch.stack([second, first]))
    arms = torch.cat([better, worse])
    count = len(first)
    return Batch(
        action=arms[:, None],
        action_mask=torch.ones(2 * count, 1, dtype=torch.bool),
        group=torch.arange(count).repeat(2),
        preference=torch.cat([torch.ones(count), -torch.ones(count)]).double(),
        ref_logprobs=reference.log_softmax(-1)[arms][:, None],
        loss_weights=weights.repeat(2)[:, None],
    )


def output(logits, batch):
    logprobs = logits.log_softmax(-1)[batch["action"]]
    return PolicyOutput(logprobs, torch.zeros_like(logprobs))


def test_the_likelihood_of_answers_that_are_not_preferred_is_lowered():
    """Log-probs -.5, -1.5 and -3 of a preferred answer, of one of twice the weight, and of one that was not judged.

    -log p = .5 of the first, and .25 * 2 * -1.5 = -.75 of the second; forced choices have no part.
    """
    columns = {"action_mask": torch.tensor([[True, False]] * 3), "preference": torch.tensor([1.0, -2.0, 0.0])}
    logprobs = torch.tensor([[-0.5, -7.0], [-1.5, -7.0], [-3.0, -7.0]])
    for negative, second in ((0.25, -0.75), (0.0, 0.0)):
        loss = PreferredLikelihood(negative)(PolicyOutput(logprobs, logprobs), Batch(**columns))
        assert loss.tolist() == [[0.5, 0], [second, 0], [0, 0]]


def test_the_weight_of_dpo_by_hand():
    """Log-ratios +1 and -1, beta .1: the gradient's weight is .1 sigmoid(-.2) = .045017 on each log-prob."""
    batch = pairs(torch.tensor([70]), torch.tensor([0]), torch.ones(1).double(), torch.zeros(100).double())
    logprobs = (batch["ref_logprobs"] + torch.tensor([[1.0], [-1.0]])).detach().requires_grad_()
    out = PolicyOutput(logprobs, torch.zeros_like(logprobs))
    loss = DPOLoss(beta=0.1)(out, batch)
    (gradient,) = torch.autograd.grad(loss.sum() / 2, logprobs)  # both rows carry the pair's loss
    assert gradient.flatten().tolist() == pytest.approx([-0.045017, 0.045017], abs=1e-6)


@pytest.mark.parametrize(
    "target, forward, reverse",
    [
        ([1 / 3, 1 / 3, 1 / 3], [-0.466667, 0.233333, 0.233333], [-0.462098, 0.231049, 0.231049]),
        ([0.98, 0.01, 0.01], [0.18, -0.09, -0.09], [0.049108, -0.024554, -0.024554]),
        ([0.8, 0.1, 0.1], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_imitation_is_forward_kl_and_on_policy_gradients_are_reverse_kl(target, forward, reverse):
    """The paper's q is the policy here, its p = [.8, .1, .1] what it should become: q - p and q (log(q / p) - KL)."""
    wanted = torch.tensor([0.8, 0.1, 0.1], dtype=torch.float64)
    logits = torch.tensor(target, dtype=torch.float64).log().requires_grad_()
    # imitation of samples of p: Pref-FT with every answer preferred
    arms = torch.arange(3)
    batch = Batch(
        action=arms[:, None], action_mask=torch.ones(3, 1, dtype=torch.bool), preference=torch.ones(3).double()
    )
    loss = (wanted[:, None] * PreferredLikelihood()(output(logits, batch), batch)).sum()
    assert torch.autograd.grad(loss, logits)[0].tolist() == pytest.approx(forward, abs=1e-6)
    # REINFORCE with the reward log p - log q on samples of q
    logprobs = logits.log_softmax(-1)
    cost = (logprobs - wanted.log()).detach()
    loss = (logprobs.exp().detach() * (cost - (logprobs.exp().detach() * cost).sum()) * logprobs).sum()
    assert torch.autograd.grad(loss, logits)[0].tolist() == pytest.approx(reverse, abs=1e-6)


def learn(term, on_policy, steps=60, lr=1.0):
    """Expected pay after steps on the expectation of pairs, by the policy itself or by the data."""
    data = -(((torch.arange(100) - 20) / 25.0) ** 2).double() / 2
    logits = data.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        source = (logits if on_policy else data).detach().softmax(-1)
        first, second = torch.multinomial(source, 2 * 64, True, generator=generator).view(2, 64)
        differ = PAY[first] != PAY[second]
        weights = differ.double() / 64
        batch = pairs(first, second, weights, data)
        loss, _ = Objective({"term": term})(output(logits, batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float((logits.detach().softmax(-1) * PAY).sum())


def test_samples_of_the_policy_reach_the_far_arm_and_samples_of_the_data_do_not():
    """With either loss; the start pays 0.1, and the best arm 1."""
    for term in (PreferredLikelihood(), DPOLoss(beta=0.01)):
        assert learn(term, on_policy=True) > 0.9 and learn(term, on_policy=False) < 0.2


def test_the_bandit_by_hand():
    """exp(-(10 / 10)^2) = .367879 ten arms beside the best one."""
    prompt = HARD[0]
    assert HARD.score(reply(prompt, "70")) == {"exact": 1.0, "pay": 1.0, "valid": 1.0}
    assert (
        HARD.score(reply(prompt, "80"))["pay"]
        == HARD.score(reply(prompt, "60"))["pay"]
        == pytest.approx(0.367879, abs=1e-6)
    )
    assert HARD.score(reply(prompt, "7"))["valid"] == HARD.score(reply(prompt, "070"))["valid"] == 0
    arms = [int(HARD.demonstrate(i)) for i in range(200)]
    assert sum(arms) / 200 == pytest.approx(20, abs=2.5)
    assert Bandit().demonstrate(0) == "70"
    with pytest.raises(ValueError, match="bandit"):
        replace(HARD, best=100)
