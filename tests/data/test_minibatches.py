"""Loss and gradient belong to the minibatch, however it is cut, padded or shared out."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_seed
from mmrl.core.types import Episode, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.data.minibatches import micro_batches
from mmrl.engines.local import LocalEngine
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.regularizer import Entropy
from mmrl.objectives.value import SquaredValue
from mmrl.objectives.weighting import ConstantLength, EpisodeMean, SequenceMean, TokenMean
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, decided
from tests.tiny_recipes import Counting

ROWS = 11
WEIGHTINGS = [TokenMean(), SequenceMean(), EpisodeMean(), ConstantLength(9)]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY, value_head=True), 3.0)


@pytest.fixture(scope="module")
def batch(policy):
    """Eleven rows of different prompts and lengths, one of them wholly forced, with made-up advantages."""
    task, engine = Counting(), LocalEngine()
    engine.sync(policy, 0)
    prompts = [task[i] for i in range(ROWS)]
    requests = [Request(p.observation, derive_seed(p.key)) for p in prompts]
    done = engine.sample(requests, Sampling(max_tokens=9, stop=tuple("abcdefghijk012345")))
    rows = collate([Episode(p, i // 3, i % 3, [Turn(c)]) for i, (p, c) in enumerate(zip(prompts, done))], policy)
    generator = torch.Generator().manual_seed(1)
    mask = rows["action_mask"].clone()
    mask[4] = False
    result = {name: torch.randn(mask.shape, generator=generator) for name in ("advantages", "returns", "values")}
    # what stands outside the mask may be anything
    return rows.with_columns(action_mask=mask, **{k: torch.where(mask, v, torch.nan) for k, v in result.items()})


def cut(batch: Batch, weighting, num_minibatches: int, accumulate: int, update_epochs: int = 1) -> list[Batch]:
    return list(
        micro_batches(
            batch,
            weighting,
            update_epochs=update_epochs,
            num_minibatches=num_minibatches,
            accumulate=accumulate,
            seed=3,
            iteration=5,
            device=torch.device("cpu"),
        )
    )


def learn(policy, pieces: list[Batch], accumulate: int):
    """Loss and gradient as Lightning makes them: the mean over the accumulated micro-batches."""
    objective = Objective(
        {"policy": ClippedSurrogate(), "value": SquaredValue(), "entropy": Entropy()}, {"value": 0.5, "entropy": 0.01}
    )
    policy.zero_grad()
    total = 0.0
    for piece in pieces:
        loss, _ = objective(policy(piece), piece)
        (loss / accumulate).backward()
        total += float(loss) / accumulate
    return total, {name: p.grad.clone() for name, p in policy.named_parameters()}


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_loss_and_gradient_do_not_change_with_the_micro_batches(policy, batch, weighting, num_minibatches):
    expected = [learn(policy, [minibatch], 1) for minibatch in cut(batch, weighting, num_minibatches, 1)]
    assert all(any((g != 0).any() for g in gradient.values()) for _, gradient in expected)
    for accumulate in (2, 4, 8):
        pieces = cut(batch, weighting, num_minibatches, accumulate)
        assert len(pieces) == num_minibatches * accumulate
        for minibatch, (loss, gradient) in enumerate(expected):
            part = pieces[minibatch * accumulate : (minibatch + 1) * accumulate]
            other = learn(policy, part, accumulate)
            assert other[0] == pytest.approx(loss, abs=1e-5)
            assert_close(other[1], gradient, atol=1e-5, rtol=1e-4)


def test_loss_and_gradient_do_not_change_with_padding(policy, batch):
    loss, gradient = learn(policy, cut(batch, TokenMean(), 1, 1), 1)
    wide = {}
    for name, column in batch.items():
        if name.startswith("obs."):
            wide[name] = torch.nn.functional.pad(column, (7, 0))
        elif column.shape[:2] == batch["action_mask"].shape:
            fill = torch.nan if column.is_floating_point() else 0
            wide[name] = torch.nn.functional.pad(column, (0, 5), value=fill)
        else:
            wide[name] = column
    other = learn(policy, cut(Batch(wide), TokenMean(), 1, 1), 1)
    assert other[0] == pytest.approx(loss, abs=1e-5)
    assert_close(other[1], gradient, atol=1e-5, rtol=1e-4)


def test_a_pass_meets_every_row_once_and_the_order_belongs_to_the_key(batch):
    pieces = cut(batch, TokenMean(), 2, 3, update_epochs=2)
    assert len(pieces) == 12

    def order(some):
        return [
            (g, e)
            for p in some
            for g, e, w in zip(p["group"].tolist(), p["episode"].tolist(), p["loss_weights"].sum(1))
            if w > 0
        ]

    first, second = order(pieces[:6]), order(pieces[6:])
    chosen = sorted(
        (g, e) for g, e, m in zip(batch["group"].tolist(), batch["episode"].tolist(), batch["action_mask"]) if m.any()
    )
    assert sorted(first) == sorted(second) == chosen and first != second
    # rows that arrive in another order are cut alike
    shuffled = batch.select(torch.randperm(ROWS, generator=torch.Generator().manual_seed(0)))
    assert order(cut(shuffled, TokenMean(), 2, 3, update_epochs=2)) == first + second


def test_fewer_rows_than_micro_batches(policy, batch):
    """Idle micro-batches weigh nothing but keep the count."""
    pieces = cut(batch.select(torch.tensor([0, 1])), TokenMean(), 2, 3)
    assert len(pieces) == 6 and all(piece.rows >= 1 for piece in pieces)
    assert sum(float(piece["loss_weights"].sum()) for piece in pieces) == pytest.approx(2 * 3)
    assert all(p.isfinite().all() for p in learn(policy, pieces, 3)[1].values())


# ---------------------------------------------------------------- who learns together


def grouped(policy, sizes=(4, 4, 2, 5, 1)) -> Batch:
    """Rows of prompts with that many episodes, in no order; the third prompt is long."""
    engine, prompts = LocalEngine(), [Counting()[i] for i in range(len(sizes))]
    engine.sync(policy, 0)
    long = ({"role": "user", "content": "again and again " * 9},)
    raws = [p.observation if i != 2 else {"messages": long, "images": ()} for i, p in enumerate(prompts)]
    requests = [Request(raws[g], derive_seed(g, a), prompt_id=g) for g, n in enumerate(sizes) for a in range(n)]
    done = engine.sample(requests, Sampling(max_tokens=12, stop=tuple("abcdefghijk012345")))
    owners = [(g, a) for g, n in enumerate(sizes) for a in range(n)]
    rows = collate([Episode(prompts[g], g, a, [Turn(c)]) for (g, a), c in zip(owners, done)], policy)
    return rows.select(torch.randperm(rows.rows, generator=torch.Generator().manual_seed(0)))


def cost(piece: Batch) -> int:
    """Tokens that are read when each prompt is read once."""
    contexts = dict(zip(piece["prompt_id"].tolist(), piece["prompt_length"].tolist()))
    return sum(contexts.values()) + int(piece["action_mask"].sum())


def test_episodes_share_their_prompts_number_in_any_order(policy):
    rows = grouped(policy)
    numbers = {}
    for group, prompt in zip(rows["group"].tolist(), rows["prompt_id"].tolist()):
        assert numbers.setdefault(group, prompt) == prompt
    assert len(set(numbers.values())) == len(numbers) == 5
    assert rows["prompt_length"].tolist() == rows["obs.attention_mask"].sum(1).tolist()


def test_episodes_of_a_prompt_learn_in_one_micro_batch_and_costs_are_alike(policy):
    rows = grouped(policy)
    (minibatch,) = cut(rows, TokenMean(), 1, 1)
    pieces = cut(rows, TokenMean(), 1, 2)
    homes = {}
    for number, piece in enumerate(pieces):
        for group in piece["group"].tolist():
            assert homes.setdefault(group, number) == number
    # the long prompt outweighs all others together: rows are not what is shared out alike
    assert sorted(sorted(set(p["group"].tolist())) for p in pieces) == [[0, 1, 3, 4], [2]]
    assert sum(map(cost, pieces)) == cost(minibatch)
    met = sorted(zip(minibatch["group"].tolist(), minibatch["episode"].tolist()))
    assert sorted((g, e) for p in pieces for g, e in zip(p["group"].tolist(), p["episode"].tolist())) == met


def test_a_prompt_with_too_many_episodes_is_shared_out(policy):
    pieces = cut(grouped(policy, (8,)), TokenMean(), 1, 4)
    assert sorted(piece.rows for piece in pieces) == [2, 2, 2, 2]


@pytest.mark.parametrize("num_minibatches, accumulate", [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_groups_that_are_compared_are_never_parted(batch, num_minibatches, accumulate):
    options = {"seed": 3, "iteration": 5, "device": torch.device("cpu"), "whole_groups": True}
    pieces = list(
        micro_batches(
            batch, SequenceMean(), update_epochs=2, num_minibatches=num_minibatches, accumulate=accumulate, **options
        )
    )
    assert len(pieces) == 2 * num_minibatches * accumulate
    for start in (0, num_minibatches * accumulate):
        part = [piece for piece in pieces[start : start + num_minibatches * accumulate] if piece["loss_weights"].any()]
        groups = [set(piece["group"].tolist()) for piece in part]
        assert sum(len(each) for each in groups) == len(set().union(*groups)) == 4
        assert sum(piece.rows for piece in part) == ROWS
