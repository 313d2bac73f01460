"""The share of a place that lives pass through."""

import pytest
import torch

from mmrl.evaluation.cells import StateCoverage, StateTrace
from mmrl.types import Completion, Episode, Prompt, Turn


def life(*places, ended="time"):
    turns = [
        Turn(Completion({"state": torch.tensor([x, y, 0.6, 0.8])}, *(torch.zeros(2) for _ in range(3)), output=None))
        for x, y in places
    ]
    return Episode(Prompt("sim/0"), 0, 0, turns=turns, ended=ended)


def visited(lives, **kwargs):
    return StateCoverage()([each.light() for each in StateTrace(**kwargs)(lives, None)])


def test_cells_are_counted_once_over_all_lives():
    """Cells of side 0.5: (0,0), (0,0), (1,0) and (1,0), (-1,0); the skill is no coordinate."""
    lives = [life((0.1, 0.1), (0.4, 0.2), (0.6, 0.2)), life((0.9, 0.4), (-0.1, 0.0))]
    assert visited(lives, cell_size=0.5) == {"visited": 3.0, "episodes": 2.0, "errors": 0.0}
    assert visited(lives, entries=(0,), cell_size=10.0)["visited"] == 2


def test_lives_that_failed_visit_nothing():
    assert visited([life((5.0, 5.0), ended="error")]) == {"visited": 0.0, "episodes": 0.0, "errors": 1.0}


def test_refusals():
    made = life((0.0, 0.0))
    with pytest.raises(KeyError, match=r"evaluation\.transforms"):
        StateCoverage()([made])
    made.turns[0].completion.observation.clear()
    with pytest.raises(KeyError, match="state vector"):
        visited([made])
