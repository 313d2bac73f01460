"""What holds for every term and every weighting, through the objective that joins them."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Objective, Term
from mmrl.objectives.weighting import TokenMean, Weighting
from tests.laws.example import Tabular, Watched, dirty, rows
from tests.laws.law_examples import TERMS, WEIGHTINGS, find_missing

terms = pytest.mark.parametrize("example", TERMS, ids=lambda example: example.name)
weightings = pytest.mark.parametrize("weights", WEIGHTINGS, ids=lambda example: example.name)
TOKEN_MEAN = TokenMean()


def alone(number):
    """The total over one process."""
    return number


def minibatch(example, weighting=TOKEN_MEAN) -> Batch:
    batch = rows(example.per_row)
    return batch.with_columns(loss_weights=weighting(batch, alone))


def leaves(policy, batch) -> PolicyOutput:
    """The policy's output, cut from the policy: gradients are taken with respect to it."""
    out = policy(batch)
    extra = {name: part.detach().requires_grad_() for name, part in out.extra.items()}
    others = {
        name: PolicyOutput(
            other.logprobs.detach().requires_grad_(),
            other.entropy.detach().requires_grad_(),
            None if other.values is None else other.values.detach().requires_grad_(),
            other.extra,
        )
        for name, other in out.others.items()
    }
    parts = (part.detach().requires_grad_() for part in (out.logprobs, out.entropy, out.values))
    return PolicyOutput(*parts, extra, others)


def gradients(out) -> list[torch.Tensor]:
    others = [part for o in out.others.values() for part in (o.logprobs, o.values) if part is not None]
    parts = (out.logprobs, out.entropy, out.values, *out.extra.values(), *others)
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parts]


def test_every_part_has_an_example():
    assert not find_missing(Term, TERMS)
    assert not find_missing(Weighting, WEIGHTINGS)


# ---------------------------------------------------------------- terms


@terms
def test_reads_and_needs_are_exactly_what_is_touched(example):
    batch, policy = minibatch(example), Tabular(2, example.per_row)
    watched = Watched(batch)
    example.part(policy(batch), watched)
    example.part.metrics(policy(batch), watched)
    assert watched.touched == example.part.reads()
    alone = policy(batch)
    alone.others = {name: out for name, out in alone.others.items() if name in example.part.others()}
    example.part(alone, batch)  # and no further pass than it says
    without = policy(batch)
    without.values = None
    if "values" in example.part.needs():
        with pytest.raises(ValueError, match="values"):
            example.part(without, batch)
    else:
        example.part(without, batch)


@terms
def test_never_reduces(example):
    batch = minibatch(example)
    out = Tabular(2, example.per_row)(batch)
    for entry in (example.part(out, batch), *example.part.metrics(out, batch).values()):
        assert tuple(entry.shape) in (tuple(batch["action_mask"].shape), (batch.rows,))


@terms
@weightings
def test_micro_batches_make_no_difference(example, weights):
    batch, policy = minibatch(example, weights.part), Tabular(2, example.per_row)
    objective = Objective({"term": example.part}, {"term": 0.5})

    def learn(pieces):
        policy.zero_grad()
        losses, metrics = zip(*(objective(policy(piece), piece) for piece in pieces))
        sum(losses).backward()
        summed = {name: sum(metric[name] for metric in metrics) for name in metrics[0]}
        return sum(losses).detach(), [p.grad.clone() for p in policy.parameters()], summed

    whole = learn([batch])
    assert any((gradient != 0).any() for gradient in whole[1])
    if example.part.whole_micro_batches:
        pieces = []  # its loss is of all rows of a micro-batch
    elif example.part.whole_groups:
        groups = batch["group"].unique()
        pieces = [[batch.select((batch["group"] == group).nonzero().flatten()) for group in groups]]
    else:
        pieces = [batch.split(size) for size in (1, 3, 4)]
    for cut in pieces:
        assert_close(learn(cut), whole, rtol=1e-5, atol=1e-6)


@terms
def test_nan_outside_the_mask_changes_neither_loss_nor_gradient(example):
    batch, policy = minibatch(example), Tabular(2, example.per_row)
    objective = Objective({"term": example.part})
    clean, soiled = leaves(policy, batch), leaves(policy, batch)
    with torch.no_grad():
        others = [part for other in soiled.others.values() for part in (other.logprobs, other.entropy)]
        values = [] if example.per_row else [soiled.values, soiled.others["blind"].values]
        for part in (soiled.logprobs, soiled.entropy, *others, *values):
            part[~batch.score_mask] = torch.nan
    results = []
    for out, data in ((clean, batch), (soiled, dirty(batch.with_columns()))):
        data = data.with_columns(loss_weights=batch["loss_weights"])
        loss, metrics = objective(out, data)
        loss.backward()
        results.append((loss.detach(), metrics, gradients(out)))
    assert results[0][0].isfinite()
    assert_close(results[1], results[0], rtol=0, atol=0)
    assert all((g[~batch.score_mask] == 0).all() for g in results[0][2] if g.shape == batch.score_mask.shape)


@terms
def test_rows_in_another_order(example):
    batch, policy = minibatch(example), Tabular(2, example.per_row)
    order = torch.randperm(batch.rows, generator=torch.Generator().manual_seed(0))
    moved = batch.select(order)
    assert_close(example.part(policy(batch), batch)[order], example.part(policy(moved), moved))


@pytest.mark.parametrize("example", [e for e in TERMS if "advantages" in e.part.reads()], ids=lambda e: e.name)
def test_zero_advantage_means_zero_gradient(example):
    batch, policy = minibatch(example), Tabular(2, example.per_row)
    batch = batch.with_columns(advantages=torch.zeros_like(batch["advantages"]))
    Objective({"term": example.part})(policy(batch), batch)[0].backward()
    assert all((p.grad == 0).all() for p in policy.parameters())


@pytest.mark.parametrize("example", [e for e in TERMS if "advantages" in e.part.reads()], ids=lambda e: e.name)
def test_descent_raises_good_choices_and_lowers_bad_ones(example):
    """At ratio 1, the first step on fresh data."""
    batch, policy = minibatch(example), Tabular(2, example.per_row)
    out = leaves(policy, batch)
    fresh = out.logprobs.detach()
    sign = torch.where(torch.arange(batch.rows) % 2 == 0, 1.0, -1.0)[:, None].expand(fresh.shape)
    batch = batch.with_columns(behavior_logprobs=fresh, old_logprobs=fresh, advantages=sign)
    Objective({"term": example.part})(out, batch)[0].backward()
    assert torch.equal(-out.logprobs.grad.sign(), torch.where(batch["action_mask"], sign, 0))


# ---------------------------------------------------------------- weightings


@weightings
def test_weights_are_shares_of_the_choices(weights):
    batch = rows(per_row=False)
    column = weights.part(batch, alone)
    assert column.shape == batch["action_mask"].shape and column.dtype == torch.float32
    assert (column[~batch["action_mask"]] == 0).all() and (column[batch["action_mask"]] > 0).all()
    if weights.sums_to_one:
        assert_close(column.sum(), torch.tensor(1.0))


@weightings
def test_weighting_reads_exactly_what_it_says(weights):
    watched = Watched(rows(per_row=False))
    weights.part(watched, alone)
    assert watched.touched == weights.part.reads()


@weightings
def test_weights_follow_the_rows(weights):
    batch = rows(per_row=False)
    order = torch.randperm(batch.rows, generator=torch.Generator().manual_seed(0))
    assert_close(weights.part(batch, alone)[order], weights.part(batch.select(order), alone))


@weightings
def test_padding_makes_no_difference(weights):
    """More padded choices, and a further row without a choice, as refills and idle processes make them."""
    batch = rows(per_row=False)
    mask = torch.nn.functional.pad(batch["action_mask"], (0, 3, 0, 1))
    keys = torch.nn.functional.pad(batch["key_tokens"], (0, 3, 0, 1), value=True)  # whatever padding has
    padded = Batch(action_mask=mask, key_tokens=keys, episode=torch.cat([batch["episode"], torch.tensor([99])]))
    assert_close(weights.part(padded, alone)[:-1, :5], weights.part(batch, alone))


@weightings
def test_nothing_chosen_weighs_nothing(weights):
    batch = rows(per_row=False)
    batch = batch.with_columns(action_mask=torch.zeros_like(batch["action_mask"]))
    assert (weights.part(batch, alone) == 0).all()


def test_examples_are_named_by_their_arguments():
    """An address in a name would differ between the processes that share the tests."""
    assert [example.name for example in (*TERMS, *WEIGHTINGS) if " at 0x" in example.name] == []
