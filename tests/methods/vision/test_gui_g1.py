"""GUI-G1: weights of prompts by hand, and what they do to advantages and the loss."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling
from mmrl.methods.vision.gui_g1 import SizeWeightedSum, difficulty_weight
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import ConstantLength
from tasks.arithmetic import Arithmetic
from tasks.clicks import Clicks

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4)


def test_weights_by_hand():
    # 1/share is 100, 20 and 5: 1/2 + 95/95, 1/2 + 15/95, 1/2 + 0
    weights = [difficulty_weight(share, 0.01, 0.2) for share in (0.01, 0.05, 0.2)]
    assert weights == pytest.approx([1.5, 0.657895, 0.5], abs=1e-6)
    assert difficulty_weight(0.03, 0.03, 0.03) == 1
    assert (difficulty_weight(0.001, 0.01, 0.2), difficulty_weight(0.9, 0.01, 0.2)) == (1.5, 0.5)


def group(share, hits):
    prompt = Prompt(f"t/{share}", info={"target_share": share})
    return [Episode(prompt, 0, k, scores={"exact": float(hit)}) for k, hit in enumerate(hits)]


def test_the_loss_of_a_prompt_has_its_weight_and_no_length_in_the_denominator():
    """Two prompts with the same hits, 1 of 4: advantages 3/4 and -1/4 times 1.5 and .5; lengths 1 to 4 of 8."""
    reward = SizeWeightedSum({"exact": 1.0}, min_share=0.01, max_share=0.2)
    earned = [*reward(group(0.01, (1, 0, 0, 0))), *reward(group(0.2, (1, 0, 0, 0)))]
    mask = (torch.arange(4) < torch.tensor([1, 2, 3, 4])[:, None]).repeat(2, 1)
    logprobs = torch.zeros(8, 4, requires_grad=True)
    batch = Batch(
        action_mask=mask,
        episode_reward=torch.tensor(earned),
        group=torch.arange(8) // 4,
        episode=torch.arange(8),
        behavior_logprobs=torch.zeros(8, 4),
    )
    batch = GroupAdvantage(scale=None)(batch, CTX)
    by_hand = torch.tensor([1.125, *[-0.375] * 3, 0.375, *[-0.125] * 3])
    assert_close(batch["advantages"][:, 0], by_hand)
    batch = batch.with_columns(loss_weights=ConstantLength(8)(batch, lambda number: number))
    Objective({"policy": ClippedSurrogate()})(PolicyOutput(logprobs, logprobs.detach()), batch)[0].backward()
    assert_close(logprobs.grad, -batch["advantages"] / (8 * 8))  # rows times length, whatever the row's own length is


def test_with_the_standard_deviation_of_the_group_the_weight_is_gone():
    reward = SizeWeightedSum({"exact": 1.0}, min_share=0.01, max_share=0.2)
    earned = [*reward(group(0.01, (1, 0, 0, 0))), *reward(group(0.2, (1, 0, 0, 0)))]
    batch = Batch(
        action_mask=torch.ones(8, 1).bool(),
        episode_reward=torch.tensor(earned),
        group=torch.arange(8) // 4,
        episode=torch.arange(8),
    )
    out = GroupAdvantage(epsilon=0)(batch, CTX)["advantages"][:, 0]
    assert_close(out[:4], out[4:])


def test_the_share_is_that_of_the_widget_in_the_image():
    task = Clicks(form="box", size=32, units=16, heights=(0.16, 0.24))
    for index in range(20):
        prompt = task[index]
        x1, y1, x2, y2 = prompt.info["widgets"][0].box
        assert prompt.info["target_share"] == (x2 - x1) * (y2 - y1) / 32**2


def test_wrong_bounds_and_tasks_without_targets_are_refused():
    SizeWeightedSum({"exact": 1.0}).check_task(Clicks())
    with pytest.raises(ValueError, match="'arithmetic' have no info 'target_share'"):
        SizeWeightedSum({"exact": 1.0}).check_task(Arithmetic())
    with pytest.raises(ValueError, match="min_share <= max_share"):
        SizeWeightedSum({"exact": 1.0}, min_share=0.3, max_share=0.2)
