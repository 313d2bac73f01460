"""Step rewards are at the token that ends each step."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.step_advantage import StepAdvantage
from mmrl.batch import Batch
from mmrl.ops.advantage import step_advantage
from mmrl.transforms.steps import locate_steps


@pytest.mark.parametrize(
    ("tokens", "steps", "segment"),
    [
        (["a", "\n", "b", ""], ["a\n", "b"], [0, 0, 1, 1]),
        (["a\nb", "c"], ["a\n", "bc"], [1, 1]),  # a token of two steps belongs to the later one
        (["", "a"], ["a"], [0, 0]),
        ([""], [""], [0]),
        ([], [""], []),
    ],
)
def test_a_token_belongs_to_the_step_of_its_last_character(tokens, steps, segment):
    assert locate_steps(tokens, steps).tolist() == segment


def columns():
    reward = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.0, 0.0], [3.0, 3.0, 0.0]])
    segment = torch.tensor([[0, 0, 1], [0, 0, 0], [0, 1, -1]])
    mask = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    return reward, segment, torch.tensor([4, 4, 7]), mask


def test_normalised_step_rewards_to_go():
    reward, segment, group, mask = columns()
    ends = torch.tensor([0.5, 1.0, 0.0])  # the steps of group 4
    unit = (ends - ends.mean()) / (ends.std(correction=0) + 1e-4)
    wanted = torch.tensor([[unit[0] + unit[1]] * 2 + [unit[1]], [unit[2]] * 3, [0.0] * 3])
    assert_close(step_advantage(reward, segment, group, mask), wanted)


def test_without_normalisation_the_group_s_mean_return_is_the_baseline():
    reward, segment, group, mask = columns()
    wanted = torch.tensor([[0.75, 0.75, 0.25], [-0.75] * 3, [0.0, -3.0, 0.0]])
    assert_close(step_advantage(reward, segment, group, mask, normalise=False), wanted)


def test_the_annotator_adds_to_the_outcome_s_advantages():
    reward, segment, group, mask = columns()
    batch = Batch(advantages=mask.float(), token_rewards=reward, segment=segment, group=group, action_mask=mask)
    out = StepAdvantage(weight=2.0, normalise=False)(batch, None)["advantages"]
    assert_close(out, mask.float() + 2 * step_advantage(reward, segment, group, mask, normalise=False))
