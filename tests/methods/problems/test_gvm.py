"""Numbers of completions by hand, the variance that they minimise, gradient norms, and the two stages."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.groups import group_episodes
from mmrl.core.types import Collector, Context, Episode, Prompt, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.problems import gvm
from mmrl.methods.problems.gvm import AllocateSamples, allocate, gradient_norms
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic()


def test_hand_computed():
    # weights 1 / sqrt(1.001), 1 / sqrt(.254), 2 / sqrt(.254), 0: shares .143770, .285410, .570820, 0 of 32
    counts = allocate(np.array([1, 1, 2, 1.0]), np.array([1, 0.25, 0.25, 0]), 32)
    assert counts.tolist() == [5, 9, 18, 0]
    assert allocate(np.ones(4), np.ones(4), 8).tolist() == [2, 2, 2, 2]
    assert allocate(np.ones(3), np.zeros(3), 8).tolist() == [3, 3, 2]  # nothing was accepted: uniform
    assert allocate(np.array([0.0, 1.0]), np.ones(2), 5).tolist() == [0, 5]
    assert allocate(np.ones(2), np.array([1.0, 0.0]), 4, alpha=0.0).tolist() == [4, 0]  # not 0 / 0
    # beta = 3, alpha = .5: .25 + .5 / .25^2 = 8.25 and 1 + .5 = 1.5; weights .348155 and .816497: 2.989 and 7.011 of
    # 10; with the exponent 3 or 1 in place of beta - 1 = 2 they were 1.774 or 4.495 of 10, so 2 or 4
    assert allocate(np.ones(2), np.array([0.25, 1.0]), 10, alpha=0.5, beta=3.0).tolist() == [3, 7]


def test_the_variance_is_least():
    """Rejection sampling keeps about p n completions: the variance is at most sum G^2 / (p n)."""
    rng = np.random.default_rng(0)
    norms, rates = rng.uniform(0.1, 3, 20), rng.uniform(0.05, 1, 20)

    def variance(counts):
        return (norms**2 / (rates * counts)).sum()

    best = allocate(norms, rates, 100_000, alpha=0.0)
    assert best.sum() == 100_000 and variance(best) < 0.9 * variance(np.full(20, 5000))
    for _ in range(50):
        other = np.maximum(best + rng.integers(-300, 300, 20), 1)
        assert variance(best) < variance(other * (100_000 / other.sum())) + 1e-9


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


class Further(Collector):
    """Samples and scores: the first completions of a prompt are right, a number that depends on the prompt."""

    def __init__(self, ctx, right):
        self.ctx, self.right, self.asked, self.fails = ctx, right, None, None

    def sample(self, indices):
        ctx = Context(*(TASK, self.ctx.engine, self.ctx.policy, self.ctx.sampling), 0, 0, requested_indices=indices)
        episodes = SingleTurn().collect([(slot, TASK[slot]) for slot, wanted in indices.items() if wanted], ctx)
        for episode in episodes:
            episode.scores = {"exact": float(episode.sample_index < self.right[episode.group])}
            if (episode.group, episode.sample_index) == self.fails:
                episode.ended = "error"
        return episodes

    def collect_samples(self, indices):
        self.asked = dict(indices)
        return self.sample(indices)


def test_norms_of_single_rows(policy):
    """Against finite differences of the log-prob along the gradient's direction."""
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(TASK, engine, policy, Sampling(max_tokens=3), 0, 0, group_size=2)
    batch = collate(SingleTurn().collect([(0, TASK[0])], ctx), policy)
    found = gradient_norms(policy, batch)
    for row in range(2):
        policy.zero_grad()
        (policy(batch).logprobs * batch["action_mask"])[row].sum().backward()
        assert found[row] == pytest.approx(
            float(torch.cat([p.grad.flatten() for p in policy.parameters()]).norm()), rel=1e-4
        )
    policy.zero_grad(set_to_none=True)
    head = gradient_norms(policy, batch, "model.model.norm")
    assert all(0 < part < whole for part, whole in zip(head, found))
    with pytest.raises(ValueError, match="no trained parameter's name begins with it"):
        gradient_norms(policy, batch, "nothing")


def test_what_has_no_gradient_has_no_part_in_a_norm():
    """A forced choice, a frozen parameter and one that the network does not use."""
    torch.manual_seed(0)
    policy, engine = decided(TextPolicy(config=TINY)).eval(), LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(TASK, engine, policy, Sampling(max_tokens=3), 0, 0, group_size=2)
    batch = collate(SingleTurn().collect([(0, TASK[0])], ctx), policy)
    batch["action_mask"][0, 1:] = False
    frozen, *trained = policy.parameters()
    frozen.requires_grad_(False)
    policy.register_parameter("unused", torch.nn.Parameter(torch.ones(2)))
    norms = gradient_norms(policy, batch)
    (parts,) = [torch.autograd.grad(policy(batch).logprobs[0, 0], trained)]
    assert norms[0] == pytest.approx(float(torch.cat([part.flatten() for part in parts]).norm()), rel=1e-4)


class Slope(torch.nn.Module):
    """Log-prob w x of every choice: the gradient of their sum is the sum of x inside the mask."""

    device = torch.device("cpu")

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, batch):
        return SimpleNamespace(logprobs=self.w * batch["x"])


ROWS = Batch(
    x=torch.tensor([[3.0, 4.0], [2.0, 8.0], [9.0, 9.0]]),
    action_mask=torch.tensor([[True, True], [True, False], [True, True]]),
)


def test_a_forced_choice_has_no_part_in_a_norm():
    assert gradient_norms(Slope(), ROWS) == [7.0, 2.0, 18.0]  # 3 + 4, and 2 alone


def test_the_rate_and_the_norm_of_a_group(monkeypatch):
    """Three of five are accepted, and two are measured: (7 + 2) / 2."""
    group = [Episode(Prompt("p/0"), 0, n, scores={"exact": float(n > 1)}) for n in range(5)]
    monkeypatch.setattr(gvm, "collate", lambda episodes, policy: ROWS.select(torch.arange(len(episodes))))
    ctx = Context(TASK, None, Slope(), Sampling(), 0, 0)
    assert AllocateSamples()._measure(group, ctx) == (0.6, 4.5)
    assert AllocateSamples()._measure(group[:2], ctx) == (0.0, 0.0)


def test_the_second_stage_is_trained_on(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(TASK, engine, policy, Sampling(max_tokens=3), 0, 0, group_size=8)
    collector = Further(ctx, right={0: 8, 1: 2, 2: 0})
    ctx = Context(TASK, engine, policy, Sampling(max_tokens=3), 0, 0, group_size=8, collector=collector)
    first = collector.sample({slot: range(8) for slot in (0, 1, 2)})
    part = AllocateSamples()
    result = group_episodes(part(first, ctx))
    # the mean norm of the first two accepted completions; of the third prompt none is accepted
    norms = [sum(gradient_norms(policy, collate(first[8 * i : 8 * i + 2], policy))) / 2 for i in range(2)]
    expected = allocate(np.array([*norms, 0.0]), np.array([1.0, 0.25, 0.0]), 24)
    assert {slot: list(r) for slot, r in collector.asked.items()} == {
        slot: list(range(8, 8 + count)) for slot, count in enumerate(expected)
    }
    assert sum(map(len, result.values())) == 24 and set(result) == {0, 1}
    assert min(e.sample_index for group in result.values() for e in group) == 8
    assert part([], ctx) == []
    collector.fails = (1, 8)  # a completion that the engine could not write is left out
    assert [(e.group, e.sample_index) for e in part(first, ctx)].count((1, 8)) == 0


def test_refusals():
    for wrong in ({"alpha": -1.0}, {"max_measured": 0}):
        with pytest.raises(ValueError, match="allocate_samples"):
            AllocateSamples(**wrong)
