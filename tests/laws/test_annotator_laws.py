"""What holds for every annotator."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import find_column
from tests.laws.example import Watched, context, dirty, rows
from tests.laws.law_examples import ANNOTATORS, find_missing

every = pytest.mark.parametrize("example", ANNOTATORS, ids=lambda example: example.name)


def declared(example) -> Batch:
    """Only what the annotator says that it reads, and the policy's inputs."""
    batch = rows(example.per_row)
    return Batch({k: v for k, v in batch.items() if k in example.part.reads() or k.startswith(("obs.", "other."))})


def test_every_annotator_has_an_example():
    assert not find_missing(Annotator, ANNOTATORS)


@every
def test_reads_and_writes_are_exactly_what_is_touched(example):
    before = Watched(declared(example))
    copies = {name: column.clone() for name, column in before.items()}
    after = example.part(before, context(example.per_row))
    assert set(after) - set(copies) == example.part.writes() - set(copies)
    assert all(find_column(name) for name in example.part.writes()) and example.part.writes() <= set(after)
    for name, column in copies.items():
        if name not in example.part.writes():
            assert torch.equal(after[name], column), f"{name} was changed"
        assert torch.equal(before[name], column), f"{name} was changed in place"


# an annotator that scores hands everything to its model; that the model needs no more than the reads is tested above
@pytest.mark.parametrize("example", [e for e in ANNOTATORS if not e.scores], ids=lambda e: e.name)
def test_nothing_but_the_reads_is_looked_at(example):
    watched = Watched(rows(example.per_row))
    example.part(watched, context(example.per_row))
    assert watched.touched == example.part.reads()


@pytest.mark.parametrize("example", [e for e in ANNOTATORS if not e.scores], ids=lambda e: e.name)
def test_a_missing_column_is_named(example):
    for name in sorted(example.part.reads()):
        batch = declared(example)
        del batch[name]
        with pytest.raises(KeyError, match=name):
            example.part(batch, context(example.per_row))


@every
def test_nan_outside_the_mask_changes_nothing(example):
    batch, ctx = rows(example.per_row), context(example.per_row)
    clean, soiled = example.part(batch, ctx), example.part(dirty(batch), ctx)
    for name in example.part.writes():
        assert clean[name].isfinite().all()
        assert torch.equal(clean[name], soiled[name])


@every
def test_rows_in_another_order(example):
    batch, ctx = rows(example.per_row), context(example.per_row)
    order = torch.randperm(batch.rows, generator=torch.Generator().manual_seed(0))
    there, back = example.part(batch, ctx).select(order), example.part(batch.select(order), ctx)
    for name in example.part.writes():
        assert_close(there[name], back[name])


@every
def test_what_is_written_has_a_documented_shape(example):
    batch = rows(example.per_row)
    after = example.part(batch, context(example.per_row))
    for name in example.part.writes():
        shapes = {
            "[N, T]": tuple(batch["action_mask"].shape),
            "[N, T, ...]": tuple(batch["action"].shape),
            "[N]": (batch.rows,),
            "[N, T, K]": (*batch["action"].shape, 2),
        }
        assert tuple(after[name].shape) in [shapes[text] for text in find_column(name).shape.split(" or ")]
        assert after[name].device.type == "cpu" and not after[name].requires_grad


@pytest.mark.parametrize("example", [e for e in ANNOTATORS if "advantages" in e.part.writes()], ids=lambda e: e.name)
def test_advantages_are_zero_where_nothing_was_chosen(example):
    batch = rows(example.per_row)
    advantages = example.part(batch, context(example.per_row))["advantages"]
    assert (advantages[~batch["action_mask"]] == 0).all() and (advantages[batch["action_mask"]] != 0).any()


@pytest.mark.parametrize("example", [e for e in ANNOTATORS if e.group_relative], ids=lambda e: e.name)
def test_the_level_of_a_group_does_not_matter(example):
    batch, ctx = rows(example.per_row), context(example.per_row)
    shift = torch.where(batch["group"] == 0, 3.0, -40.0)
    shifted = batch.with_columns(episode_reward=batch["episode_reward"] + shift)
    assert_close(example.part(batch, ctx)["advantages"], example.part(shifted, ctx)["advantages"])
