"""Columns that a part registers in its own module."""

import pytest
import torch

from mmrl.core.columns import Column, find_column, is_ragged, pad_value, per_choice, register_columns, table
from mmrl.data.collate import collate_rows

SURPRISE = Column("[N, T]", "nats", "surprise of each choice", pad=-1)


@pytest.fixture(autouse=True)
def no_columns_are_left(monkeypatch):
    monkeypatch.setattr("mmrl.core.columns._REGISTERED", {})


def test_a_column_that_a_part_registers_is_padded_and_described():
    assert find_column("surprise") is None
    register_columns({"surprise": SURPRISE, "spans": Column("[N, *]", "ids", "ends of the spans of a row")})
    rows = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
    assert collate_rows("surprise", rows).tolist() == [[1, 2], [3, -1]]
    spans = collate_rows("spans", rows)
    assert is_ragged("spans") and spans.values.tolist() == [1, 2, 3] and spans.sizes.tolist() == [2, 1]
    assert per_choice("surprise") and not per_choice("spans") and pad_value("spans") == 0
    lines = table().splitlines()
    assert "| `surprise` | `[N, T]` | nats | surprise of each choice |" in lines
    names = [line.split("`")[1] for line in lines[2:]]
    assert names[0] == "action" and names[-5:] == ["spans", "surprise", "obs.*", "other.<context>.*", "next.*"]


def test_a_module_may_be_imported_again_and_no_name_has_two_meanings():
    register_columns({"surprise": SURPRISE})
    register_columns({"surprise": Column("[N, T]", "nats", "surprise of each choice", pad=-1)})
    with pytest.raises(ValueError, match=r"'surprise' is there already, as .*surprise of each choice.*another name"):
        register_columns({"surprise": Column("[N]", "nats", "surprise of a row")})
    with pytest.raises(ValueError, match="'advantages' is there already"):
        register_columns({"advantages": Column("[N]", "reward", "the same for all choices of a row")})


@pytest.mark.parametrize("shape", ["[N,T]", "N, T", "[T]", "[n, T]", "[N] or [T]", "[N, T, ..]"])
def test_a_shape_that_padding_could_not_read_is_refused(shape):
    with pytest.raises(ValueError, match="rows come first"):
        Column(shape, "1", "")
