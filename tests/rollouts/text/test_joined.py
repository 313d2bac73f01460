"""A completion is shortened with everything that belongs to its choices, or refused by the column that cannot be."""

import pytest
import torch

from mmrl.core.columns import COLUMNS, Column
from mmrl.core.types import Completion
from mmrl.rollouts.text.joined import truncate


def complete(**extra: torch.Tensor) -> Completion:
    ids = torch.tensor([3, 1, 2])
    return Completion({}, ids, -ids.float(), torch.ones(3).bool(), "", "done", extra=extra)


def test_ids_of_truncated_sampling_are_cut_by_the_choices_they_belong_to():
    sizes, ids = torch.tensor([1, 0, 3]), torch.tensor([3, 7, 2, 5])
    done = truncate(complete(support_sizes=sizes, packed_support_ids=ids), 2)
    assert (done.action.tolist(), done.ended) == ([3, 1], "length")
    assert done.extra["support_sizes"].tolist() == [1, 0] and done.extra["packed_support_ids"].tolist() == [3]


def test_guides_and_recorded_experts_stay_whole():
    """The first are a text; the second are matched with the tokens of the row (`match_experts`)."""
    extra = {"packed_guides": torch.tensor([65, 66]), "guide_sizes": torch.tensor([2, -1, -1])}
    extra |= {"routed_experts": torch.zeros(5, 2, 1), "routed_tokens": torch.arange(5)}
    done = truncate(complete(**extra), 1)
    assert done.extra["guide_sizes"].tolist() == [2]
    assert all(done.extra[name] is extra[name] for name in ("packed_guides", "routed_experts", "routed_tokens"))


def test_another_ragged_column_is_named(monkeypatch):
    monkeypatch.setitem(COLUMNS, "marks", Column("[N, *]", "1", "marks of a project"))
    done = complete(marks=torch.zeros(2))
    assert truncate(done, 3) is done
    with pytest.raises(ValueError, match="the column 'marks' cannot be shortened to 2 choices"):
        truncate(done, 2)
