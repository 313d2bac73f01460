"""Goal-conditioned IQL: the policy's inputs, the actor's goals, and a value that learns the number of steps."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.iql import ValueTarget
from mmrl.methods.goals.gciql import ActorGoals
from mmrl.policies.control.goal import GoalPolicy
from mmrl.policies.control.value import ValueNetwork


def context(parts) -> UpdateContext:
    return UpdateContext(parts, torch.zeros, lambda loss: None, lambda metrics: None)


def test_the_actor_reads_the_state_and_then_the_goal(tmp_path):
    torch.manual_seed(0)
    policy = GoalPolicy(3, 2, hidden=[4], goal_dims=2)
    observation = policy.encode_batch({"state": np.ones((2, 3)), "goal": np.array([[5, 6], [7, 8]])})
    assert policy.features(observation).tolist() == [[1, 1, 1, 5, 6], [1, 1, 1, 7, 8]]
    assert policy.actor[0].in_features == 5
    policy.save_pretrained(tmp_path)
    again = GoalPolicy(path=str(tmp_path))
    features = policy.features(observation)
    torch.testing.assert_close(again.rsample(features, torch.ones(2, 2)), policy.rsample(features, torch.ones(2, 2)))


def test_goals_have_the_scale_of_states():
    """States 0 and 2 have the mean 1 and the variance 1, so that the goal 3 is at 2."""
    policy = GoalPolicy(1, 2, hidden=[4], normalize_observations=True)
    policy.count_rows(Batch({"obs.state": torch.tensor([[0.0], [2.0]])}), lambda sums: sums)
    policy.include_rows()
    features = policy.features({"state": torch.tensor([[1.0]]), "goal": torch.tensor([[3.0]])})
    torch.testing.assert_close(features, torch.tensor([[0.0, 2.0]]))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"goal_dims": 0}, "policy.goal_dims=0"),
        ({"goal_dims": 2, "normalize_observations": True}, "normalize_observations=true"),
        ({"observation_dims": None, "image_size": 17}, "needs a state vector"),
    ],
)
def test_goals_of_another_size_are_refused(options, refused):
    with pytest.raises(ValueError, match=refused):
        GoalPolicy(**{"observation_dims": 3, "actions": 2, "hidden": [4], **options})


def test_observations_without_the_goal_are_refused():
    policy = GoalPolicy(3, 2, hidden=[4], goal="aim")
    box, action = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
    policy.check_spaces(spaces.Dict({"state": box, "aim": box}), action)
    with pytest.raises(ValueError, match="from observation 'aim'"):
        policy.check_spaces(spaces.Dict({"state": box, "goal": box}), action)
    with pytest.raises(ValueError, match="no goal among"):
        policy.features({"state": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match=r"policy\.goal_dims=3"):
        policy.encode_batch({"state": np.zeros((1, 3)), "aim": np.zeros((1, 2))})


def test_the_actors_goals_replace_those_of_the_value():
    batch = Batch({"obs.goal": torch.zeros(2, 1), "next.goal": torch.zeros(2, 1)}, actor_goal=torch.ones(2, 1))
    after = ActorGoals()(batch, context({}))
    assert after["obs.goal"].tolist() == [[1], [1]] and after["next.goal"].tolist() == [[1], [1]]


def test_a_value_that_counts_steps_is_the_fixed_point():
    """On the line 0, 1, 2, 3 with goal 3 and gamma 0.5, V = -1.75, -1.5, -1 and 0: minus the sum of powers of 0.5."""
    values = torch.tensor([-1.75, -1.5, -1.0, 0.0])
    table = ValueNetwork(2, [1])
    table.forward = lambda features: values[features[:, 0].long()][:, None]
    states = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    batch = Batch({"next.state": states.roll(-1, 0), "next.goal": torch.full((4, 1), 3.0)})
    batch = batch.with_columns(reward=torch.tensor([-1.0, -1, -1, 0]), discount=torch.tensor([0.5, 0.5, 0.5, 0]))
    parts = {"policy": GoalPolicy(1, 2, hidden=[4]), "value": table}
    assert ValueTarget()(batch, context(parts))["returns"][:, 0].tolist() == values.tolist()
