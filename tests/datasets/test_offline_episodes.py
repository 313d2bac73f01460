"""Cutting an episode into decisions, by hand."""

import numpy as np
import pytest

from tests.datasets.episodes import episode


def test_windows_of_a_chunk_as_it_would_have_been_played():
    recorded = episode(8, 0)
    decisions = list(recorded.decisions(3))
    a = recorded.actions
    assert [d.executed for d in decisions] == [3, 3, 2] and [d.reward for d in decisions] == [0, 0, 1]
    np.testing.assert_array_equal(np.stack([d.output for d in decisions]), [a[0:3], a[3:6], a[[6, 7, 7]]])
    for decision, start in zip(decisions, (0, 3, 6)):
        np.testing.assert_array_equal(decision.raw["proprio"], recorded.observations["proprio"][start])
        assert decision.raw["instruction"] == recorded.instruction


def test_windows_from_every_control_step():
    recorded = episode(4, 0)
    decisions = list(recorded.decisions(3, stride=1))
    assert [d.executed for d in decisions] == [3, 3, 2, 1] and sum(d.reward for d in decisions) == 1
    np.testing.assert_array_equal(decisions[3].output, recorded.actions[[3, 3, 3]])


def test_a_policy_without_chunks_decides_every_control_step():
    decisions = list(episode(4, 0).decisions(None))
    assert len(decisions) == 4 and decisions[0].output.shape == (3,)


def test_columns_must_be_of_one_length_and_finite():
    with pytest.raises(ValueError, match="reward has 2 rows, the actions have 4"):
        episode(4, 0, rewards=np.zeros(2, np.float32))
    actions = np.zeros((4, 3), np.float32)
    actions[2, 1] = np.inf
    with pytest.raises(ValueError, match="action is not finite at control step 2"):
        episode(4, 0, actions=actions).refuse_broken()
    assert not episode(4, 0, terminated=True, truncated=True).truncated
