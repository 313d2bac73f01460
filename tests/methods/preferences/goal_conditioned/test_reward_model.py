"""Goal-conditioned reward model: the loss by hand, places of answers, and the goal that training finds."""

from math import log

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from mmrl.core.errors import ConfigError
from mmrl.methods.preferences.goal_conditioned.reward_model import (
    GoalContrastiveLoss,
    GoalScoringPolicy,
    goal_contrastive_loss,
)
from tests.laws.example import Example
from tests.policies.text.oracle import TINY

LAWS = [Example(GoalContrastiveLoss(4), per_row=True)]


def at(cosine):
    """A vector with this cosine to the first axis."""
    return torch.tensor([[cosine, (1 - cosine**2) ** 0.5]])


@pytest.mark.parametrize("near, far, loss", [(1.0, -1.0, 0.3133), (0.6, 0.6, 0.7375)])
def test_the_loss_by_hand(near, far, loss):
    """sigmoid(1) = .731059: .5 (2 * .313262); sigmoid(.6) = .645656: .5 (.437488 + 1.037488)."""
    axis = at(1.0)
    assert 0.5 * goal_contrastive_loss(axis, at(near), axis, at(far)).item() == pytest.approx(loss, abs=1e-4)


def test_the_mean_is_over_all_sources_and_goals():
    one, two = torch.randn(3, 5), torch.randn(3, 5)
    cosines = [torch.cosine_similarity(a, b, dim=0).sigmoid() for a in one for b in two]
    expected = -log(sum(cosines) / 9) - log(1 - sum(cosines) / 9)
    assert goal_contrastive_loss(one, two, one, two).item() == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return GoalScoringPolicy(config=dict(TINY), momentum=0.5)


def encode(policy, prompt, answer):
    return policy.encode({"messages": [{"role": "user", "content": prompt}], "answer": answer})


def test_places_are_those_of_the_answer(policy):
    """One token a character: the answer begins after the prompt's five characters."""
    row = encode(policy, "Word:", "abc")
    assert int(row["start"]) == 5 and len(row["input_ids"]) == 9  # with the end
    assert policy.tokenizer.decode(row["input_ids"][5:8]) == "abc"


def test_q_is_the_cosine_to_the_goal(policy):
    observation = policy.collate([encode(policy, "Word:", answer) for answer in ("abc", "h", "")])
    states, scores = policy._states(observation)
    assert_close(policy.scores(observation), scores[:, 0])
    last = observation["attention_mask"].sum(1) - 1
    policy.goal.copy_(states[0, last[0]].detach())
    policy.scored_by = "goal"
    q = policy.scores(observation)
    policy.scored_by = "head"
    assert q[0].item() == pytest.approx(1.0, abs=1e-5) and q[1] < 1
    policy.goal.zero_()


def test_the_goal_is_saved_with_the_policy(tmp_path):
    torch.manual_seed(1)
    trained = GoalScoringPolicy(config=dict(TINY), scored_by="goal")
    observation = trained.collate([encode(trained, "Word:", answer) for answer in ("abc", "h")])
    with pytest.raises(ConfigError, match="no goal yet"):  # a cosine to nothing would be 0 for every answer
        trained.scores(observation)
    trained.goal.copy_(torch.randn(trained.goal.shape))
    trained.save_pretrained(tmp_path)
    loaded = GoalScoringPolicy(path=str(tmp_path), scored_by="goal")
    assert torch.equal(loaded.goal, trained.goal)
    assert_close(loaded.scores(observation), trained.scores(observation))
    save_file({"goal": torch.zeros(3)}, tmp_path / "goal.safetensors")
    with pytest.raises(ValueError, match="states of 3 numbers"):
        GoalScoringPolicy(path=str(tmp_path))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="scored_by"):
        GoalScoringPolicy(config=dict(TINY), scored_by="mean")
    with pytest.raises(ValueError, match="one head"):
        GoalScoringPolicy(config=dict(TINY), heads=2)
    with pytest.raises(ValueError, match="goal_contrastive_loss"):
        GoalContrastiveLoss(0)
