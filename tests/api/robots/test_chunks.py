"""Chunks that are joined while they are played, with numbers by hand."""

import numpy as np
import pytest

from mmrl.api.robots.chunks import ChunkQueue


def column(*values):
    return np.array(values, np.float32)[:, None]


def play(queue, steps):
    return [None if (action := queue.action(step)) is None else float(action[0]) for step in steps]


def test_actions_of_past_control_steps_are_dropped():
    """A chunk from step 2 that comes at step 4 loses its first two actions; it ends before step 6."""
    queue = ChunkQueue()
    assert queue.join(column(0, 1, 2, 3, 4), origin=0, step=0) == 0
    assert queue.join(column(12, 13, 14, 15), origin=2, step=4) == 2
    assert play(queue, [4, 5, 6]) == [14, 15, None] and queue.origin == 2
    assert queue.remaining(5).tolist() == [[15]]


def test_a_chunk_that_is_too_late_changes_nothing():
    queue = ChunkQueue()
    queue.join(column(0, 1, 2, 3, 4, 5), origin=0, step=0)
    assert queue.join(column(9, 9), origin=1, step=3) == 2
    assert play(queue, range(3, 7)) == [3, 4, 5, None] and queue.origin == 0


def test_overlaps_are_blended_as_far_as_the_old_chunk_reaches():
    """blend = 3: w = 1/4, 1/2, 3/4 of the new chunk, here 8 over 0: 2, 4, 6, then 8. Of an old one with two actions
    left, 2 and 4 alone are averages."""
    queue = ChunkQueue(blend=3)
    queue.join(column(*[0] * 10), origin=0, step=0)
    queue.join(column(*[8] * 6), origin=1, step=2)
    assert play(queue, range(2, 8)) == [2, 4, 6, 8, 8, None]
    queue = ChunkQueue(blend=3)
    queue.join(column(0, 0, 0, 0), origin=0, step=0)
    queue.join(column(*[8] * 6), origin=1, step=2)
    assert play(queue, range(2, 6)) == [2, 4, 8, 8]


def test_a_cleared_queue_has_no_action():
    queue = ChunkQueue()
    queue.join(column(0, 1, 2), origin=0, step=0)
    queue.clear()
    assert queue.origin is None and play(queue, [0, 1]) == [None, None]


def test_a_negative_blend_is_refused():
    with pytest.raises(ValueError, match=r"robot\.blend must be at least 0"):
        ChunkQueue(-1)
