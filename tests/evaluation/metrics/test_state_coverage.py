"""The share of a place that episodes pass through."""

import pytest
import torch

from mmrl.evaluation.metrics.state_coverage import StateCoverage, StateTrace
from mmrl.types import Completion, Episode, Prompt, Turn


def episode(*places, ended="time"):
    turns = [
        Turn(Completion({"state": torch.tensor([x, y, 0.6, 0.8])}, *(torch.zeros(2) for _ in range(3)), output=None))
        for x, y in places
    ]
    return Episode(Prompt("sim/0"), 0, 0, turns=turns, ended=ended)


def visited(episodes, **kwargs):
    return StateCoverage()([each.light() for each in StateTrace(**kwargs)(episodes, None)])


def test_cells_are_counted_once_over_all_episodes():
    """Cells of side 0.5: (0,0), (0,0), (1,0) and (1,0), (-1,0); the skill is no coordinate."""
    episodes = [episode((0.1, 0.1), (0.4, 0.2), (0.6, 0.2)), episode((0.9, 0.4), (-0.1, 0.0))]
    assert visited(episodes, cell_size=0.5) == {"visited": 3.0, "episodes": 2.0, "errors": 0.0}
    assert visited(episodes, entries=(0,), cell_size=10.0)["visited"] == 2


def test_episodes_that_failed_visit_nothing():
    assert visited([episode((5.0, 5.0), ended="error")]) == {"visited": 0.0, "episodes": 0.0, "errors": 1.0}


def test_refusals():
    result = episode((0.0, 0.0))
    with pytest.raises(KeyError, match=r"evaluation\.transforms"):
        StateCoverage()([result])
    result.turns[0].completion.observation.clear()
    with pytest.raises(KeyError, match="state vector"):
        visited([result])
