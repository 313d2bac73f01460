"""Which rows come first, which wait, and when they come back, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.data.collate import apply_rows
from mmrl.methods.rewards.rorecomp import RecomposeRows, select_priority
from mmrl.schedules import Cosine
from mmrl.transforms.rows.replay import STRIDE
from tests.composed_words import compose_words
from tests.transforms.rows.test_rows import context, rows

LAWS = [lambda: RecomposeRows(0.5, probability=0.5)]

LENGTHS = [120, 80, 200, 60, 300, 90, 210, 150]
CORRECT = [True] * 4 + [False] * 4


def batch_of(lengths, correct, group=None, version=0):
    """One row for each length."""
    batch = rows(group or [0] * len(lengths), [float(c) for c in correct], version, width=max(lengths))
    return batch.with_columns(action_mask=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def lengths_of(batch):
    return batch["action_mask"].sum(1).tolist()


def test_short_correct_and_long_wrong_rows_come_first():
    # correct 60, 80 of [120, 80, 200, 60]; wrong 300, 210 of [300, 90, 210, 150]
    chosen = select_priority(np.array(CORRECT), np.array(LENGTHS), 0.5)
    assert sorted(np.array(LENGTHS)[chosen]) == [60, 80, 210, 300]
    assert select_priority(np.array([True] * 3), np.array([3, 1, 2]), 0.5).tolist() == [False, True, True]
    assert select_priority(np.array([False, False]), np.array([5, 5]), 0.5).tolist() == [True, False]


def test_the_others_wait_and_come_back():
    part = RecomposeRows(0.5, probability=1.0)
    assert sorted(lengths_of(part(batch_of(LENGTHS, CORRECT), context(0)))) == [60, 80, 210, 300]
    ((key, waiting),) = part.buffer.items()
    assert key == (0, 0) and lengths_of(waiting) == [120, 200, 90, 150]
    assert waiting["episode_reward"].tolist() == [1, 1, 0, 0]
    both = part(batch_of([5, 6], [True, True], version=1), context(1))
    assert lengths_of(both) == [5, 120, 200, 90, 150]  # and row 6 waits
    assert both["policy_version"].tolist() == [1, 0, 0, 0, 0] and both["group"].tolist() == [0, *[STRIDE] * 4]
    assert_close(both["advantages"][1:, 0], torch.tensor([1.0, 1.0, 0.0, 0.0]))  # as their whole group gave them
    assert list(part.buffer) == [(1, 0)] and lengths_of(part.buffer[(1, 0)]) == [6]


def test_no_more_rows_come_back_than_an_iteration_has():
    part = RecomposeRows(0.5)
    part(batch_of([1, 2, 3, 4, 5, 6], [True] * 6, group=[0, 0, 1, 1, 2, 2]), context(0))  # 1, 2, 3 are kept
    assert [lengths_of(part.buffer[key]) for key in sorted(part.buffer)] == [[4], [5, 6]]
    assert lengths_of(part(batch_of([7, 8], [True, True], version=1), context(1))) == [7, 4]
    assert lengths_of(part(batch_of([9], [True], version=2), context(2))) == [9, 5, 6]


def test_rows_that_are_too_old_leave_and_the_probability_can_be_0():
    part = RecomposeRows(0.5, probability=0.0, max_age=2)
    part(batch_of([1, 2], [True, True]), context(0))
    for iteration in (1, 2):
        assert part(batch_of([3], [True], version=iteration), context(iteration)).rows == 1
        assert list(part.buffer) == [(0, 0)]
    part(batch_of([3], [True], version=3), context(3))
    assert not part.buffer
    full = RecomposeRows(0.5, probability=0.0, capacity=1)  # whatever the probability
    full(batch_of([1, 2], [True, True]), context(0))
    assert lengths_of(full(batch_of([3], [True], version=1), context(1))) == [3, 2]


def test_the_buffer_of_the_recipe_fills_up_and_is_used_once_the_probability_is_0():
    """Batches of the recipe's size in which seven of eight groups have a difference in reward."""
    data = compose_words(("recipe=rorecomp",)).data
    prompts = data.num_prompts * 7 // 8
    group = [slot for slot in range(prompts) for _ in range(data.group_size)]
    correct = [k % 2 == 0 for k in range(len(group))]
    part = instantiate(data.rows.recompose, probability=0.0)
    replayed = []
    for iteration in range(8):
        batch = part(batch_of([1 + k % 8 for k in range(len(group))], correct, group, iteration), context(iteration))
        replayed.append(int((batch["policy_version"] < iteration).sum()))
    # half of the rows wait; the groups of two iterations fill it
    assert replayed == [0, 0, *[len(group) // 2] * 6]


def test_the_cosine_of_the_probability():
    schedule = Cosine(1.0, 0.0, 100)
    assert [schedule(t) for t in (0, 50, 100)] == pytest.approx([1, 0.5, 0])


def test_two_processes_choose_as_one():
    whole = batch_of(LENGTHS, CORRECT, group=[0] * 4 + [1] * 4)
    own = [whole.select(torch.arange(4)), whole.select(torch.arange(4, 8))]
    given = []
    for rank in (0, 1):
        collector = SimpleNamespace(gather=lambda items: given.extend(items) or items)
        RecomposeRows(0.25)._select(own[rank], context(rank=rank, size=2, collector=collector))
    both = []
    for rank in (0, 1):
        collector = SimpleNamespace(gather=lambda items: given)
        chosen, count = RecomposeRows(0.25)._select(own[rank], context(rank=rank, size=2, collector=collector))
        both += chosen.tolist()
        assert count == 2
    assert both == RecomposeRows(0.25)._select(whole, context())[0].tolist()


def test_a_saved_buffer_and_its_age_are_accepted():
    one, other = RecomposeRows(), RecomposeRows()
    one(batch_of(LENGTHS, CORRECT), context(0))
    other.load_state_dict(one.state_dict())
    now = batch_of([3, 4], [True, False], version=1)
    left, _ = apply_rows({"recompose": one}, now, context(1), 0)
    right, metrics = apply_rows({"recompose": other}, now, context(1), 0)
    assert_close(dict(left), dict(right), rtol=0, atol=0)
    assert metrics["rows/trained"] == 6 and left.rows == 6


def test_refusals():
    for wrong in ({"fraction": 0.0}, {"probability": 2.0}, {"max_age": 0}):
        with pytest.raises(ValueError):
            RecomposeRows(**wrong)
    batch = batch_of([1, 2], [True, True])
    with pytest.raises(ValueError, match="one row"):
        RecomposeRows()(batch.with_columns(step=torch.tensor([0, 1])), context())


def test_rows_of_a_buffer_do_not_wait_again():
    """Groups from STRIDE on are those of earlier iterations, such as another buffer adds."""
    part = RecomposeRows(0.5, probability=0.0)
    part(batch_of([1, 3, 2, 4], [True] * 4, group=[STRIDE - 1] * 2 + [STRIDE] * 2), context(0))
    assert list(part.buffer) == [(0, STRIDE - 1)]


def test_groups_of_another_process_count_as_much_and_come_back_there():
    """Two rows of priority here: the other process's group of two rows waits longest, so that none of this one does."""
    part = RecomposeRows(0.5)
    part(batch_of([1, 2, 3, 4], [True] * 4), context(0))

    class Two:
        def gather(self, items):
            is_waiting = items and isinstance(items[0][0], tuple) and isinstance(items[0][1], int)
            return [((0, -1), 2), *items] if is_waiting and len(items[0]) == 2 and items[0][0] == (0, 0) else items

    now = context(1, collector=Two())
    assert lengths_of(part(batch_of([5, 6], [True, True], version=1), now)) == [5]


def test_the_capacity_is_that_of_all_processes():
    """The other process's group is the newest: of two groups in a buffer for two, the newer one of this one stays."""

    def gather(items):
        is_keys = items and all(isinstance(each, tuple) and all(type(n) is int for n in each) for each in items)
        return [*items, (0, 9)] if is_keys else items

    part = RecomposeRows(0.5, probability=0.0, capacity=2)
    collector = SimpleNamespace(gather=gather)
    part(batch_of([1, 3, 2, 4], [True] * 4, group=[0, 0, 1, 1]), context(0, collector=collector))
    assert list(part.buffer) == [(0, 1)]
