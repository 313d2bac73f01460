"""Batch, its ragged columns, and padding."""

import pytest
import torch

from mmrl.core.batch import Batch, Ragged, pad_stack


def example() -> Batch:
    """Three rows that own 2, 0 and 3 patches: 0 1 | - | 2 3 4."""
    patches = Ragged(torch.arange(5.0)[:, None], torch.tensor([2, 0, 3]))
    return Batch({"action_mask": torch.ones(3, 2).bool(), "group": torch.tensor([4, 5, 6]), "obs.patches": patches})


def test_rows_are_selected_in_the_order_given():
    part = example().select(torch.tensor([2, 0, 2]))
    assert part["group"].tolist() == [6, 4, 6]
    assert part["obs.patches"].lengths.tolist() == [3, 2, 3]
    assert part["obs.patches"].values[:, 0].tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    nothing = example().select(torch.tensor([], dtype=torch.long))
    assert nothing.rows == 0 and nothing["obs.patches"].values.shape == (0, 1)


def test_a_boolean_index_selects_too():
    assert example()["obs.patches"][torch.tensor([True, False, True])].values[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_pieces_put_together_are_the_whole():
    batch = example()
    pieces = batch.split(2)
    assert [piece.rows for piece in pieces] == [2, 1] and all(isinstance(piece, Batch) for piece in pieces)
    assert torch.cat([piece["obs.patches"].values for piece in pieces]).tolist() == batch["obs.patches"].values.tolist()


def test_columns_that_differ_in_rows_are_refused():
    with pytest.raises(ValueError, match=r"differ in their number of rows.*'group': 3.*'action_mask': 2"):
        _ = Batch(group=torch.zeros(3), action_mask=torch.zeros(2)).rows


def test_a_missing_column_is_named_with_its_reader():
    with pytest.raises(KeyError, match=r"annotator 'x' reads \['values'\].*'group'"):
        example().require({"values", "group"}, "annotator 'x'")


def test_observation_and_new_columns():
    batch = example()
    more = batch.with_columns(values=torch.zeros(3))
    assert set(more.observation()) == {"patches"} and "values" not in batch and isinstance(more, Batch)


def test_lightning_moves_a_batch_and_keeps_its_type():
    from lightning.fabric.utilities import move_data_to_device

    moved = move_data_to_device(example(), torch.device("cpu"))
    assert type(moved) is Batch and type(moved["obs.patches"]) is Ragged


def test_padding():
    rows = [torch.tensor([1, 2]), torch.tensor([3]), torch.tensor([], dtype=torch.long)]
    assert pad_stack(rows, -1).tolist() == [[1, 2], [3, -1], [-1, -1]]
    assert pad_stack(rows, -1, left=True).tolist() == [[1, 2], [-1, 3], [-1, -1]]
    assert pad_stack([torch.ones(1, 2), torch.ones(2, 1)], 0).tolist() == [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]
    assert pad_stack([torch.tensor(1.5), torch.tensor(2.5)]).tolist() == [1.5, 2.5]
    assert pad_stack([torch.ones(2).bool(), torch.ones(1).bool()]).tolist() == [[True, True], [True, False]]


def test_one_row_of_a_ragged_column_is_its_items():
    patches = Ragged(torch.arange(5.0)[:, None], torch.tensor([2, 0, 3]), torch.tensor([2, 0, 2, 1]))
    assert [patches[i].flatten().tolist() for i in range(4)] == [[2, 3, 4], [0, 1], [2, 3, 4], []]
    assert patches[0].data_ptr() == patches[2].data_ptr()  # shared items are not copied


def test_a_column_per_episode_has_the_value_of_its_first_row():
    batch = Batch(episode=torch.tensor([7, 3, 7, 3, 9]), reward=torch.tensor([[1.0], [2], [3], [4], [5]]))
    entry, ids, reward = batch.per_episode("episode", "reward")
    assert entry.tolist() == [1, 0, 1, 0, 2]
    assert ids.tolist() == [3, 7, 9] and reward.tolist() == [[2], [1], [5]]
