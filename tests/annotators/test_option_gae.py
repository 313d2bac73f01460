"""GAE over options: discounts by duration against sums written out, and durations of 1 against plain GAE."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.annotators.option_gae import OptionGAE, option_advantages
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from tests.laws.example import Example

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
LENGTHS = (4, 2, 5)
LAWS = [Example(OptionGAE(0.9, 0.8, whiten), per_row=True) for whiten in (False, True)]


def rows(seed=0, durations=None):
    """Rows of three episodes in a random order; the second and third have a value after their last option."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(LENGTHS)
    last = torch.zeros(count, dtype=torch.bool)
    last[torch.tensor(LENGTHS).cumsum(0) - 1] = True
    bootstrap = torch.zeros(count)
    bootstrap[[5, 10]] = torch.tensor([0.7, -0.4])
    batch = Batch(
        episode=torch.tensor([3, 8, 9]).repeat_interleave(torch.tensor(LENGTHS)),
        step=torch.cat([torch.arange(length) for length in LENGTHS]),
        reward=torch.randn(count, generator=generator),
        values=torch.randn(count, generator=generator),
        durations=torch.randint(1, 9, (count,), generator=generator).float() if durations is None else durations,
        bootstrap_value=bootstrap,
        is_last=last,
        action_mask=torch.ones(count, 1, dtype=torch.bool),
    )
    order = torch.randperm(count, generator=generator)
    return batch.select(order), batch, order


def test_two_options_by_hand():
    """gamma .5, lambda 1: the second option of 1 step has delta 4 - 2 = 2; the first of 3 steps is discounted by
    1/8: delta 1 + 2/8 - 3 = -1.75, advantage -1.75 + 2/8 = -1.5. With lambda 0 it is delta alone."""
    part = [torch.tensor([numbers]) for numbers in ([1.0, 4.0], [3.0, 2.0], [3.0, 1.0])]
    mask, nothing = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1)
    assert option_advantages(*part, mask, nothing, 0.5, 1.0).tolist() == [[-1.5, 2.0]]
    assert option_advantages(*part, mask, nothing, 0.5, 0.0).tolist() == [[-1.75, 2.0]]


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_discounts_by_duration_are_those_of_sums_written_out(gae_lambda):
    """A_t = sum_i lambda^(i-t) gamma^(time from t to i) delta_i; with lambda 1 it is the discounted return less V_t."""
    shuffled, batch, order = rows()
    gamma, expected = 0.9, []
    for episode in (3, 8, 9):
        e = batch.select((batch["episode"] == episode).nonzero().flatten())
        reward, value, duration = (e[name].double().tolist() for name in ("reward", "values", "durations"))
        after = [*value[1:], float(e["bootstrap_value"][-1])]
        for t in range(len(reward)):
            total = 0.0
            for i in range(t, len(reward)):
                delta = reward[i] + gamma ** duration[i] * after[i] - value[i]
                total += gae_lambda ** (i - t) * gamma ** sum(duration[t:i]) * delta
            if gae_lambda == 1:
                returns = [gamma ** sum(duration[t:i]) * reward[i] for i in range(t, len(reward))]
                plain = sum(returns) + gamma ** sum(duration[t:]) * after[-1] - value[t]
                assert total == pytest.approx(plain)
            expected.append(total)
    out = OptionGAE(gamma, gae_lambda)(shuffled, CTX)
    expected = torch.tensor(expected)[order]
    assert_close(out["advantages"][:, 0], expected, atol=1e-5, rtol=1e-5)
    assert_close(out["returns"], expected + shuffled["values"], atol=1e-5, rtol=1e-5)


def test_options_of_one_step_are_steps():
    shuffled, *_ = rows(durations=torch.ones(sum(LENGTHS)))
    for whiten in (False, True):
        ours, plain = (part(0.9, 0.8, whiten)(shuffled, CTX) for part in (OptionGAE, GAE))
        for name in ("advantages", "returns"):
            assert_close(ours[name], plain[name], atol=1e-6, rtol=1e-6)


def test_refusals():
    shuffled, *_ = rows()
    with pytest.raises(ValueError, match="one value per row"):
        OptionGAE()(shuffled.with_columns(values=torch.zeros(sum(LENGTHS), 2)), CTX)
    with pytest.raises(ValueError, match=r"gae\.gamma must be in"):
        OptionGAE(1.5)
