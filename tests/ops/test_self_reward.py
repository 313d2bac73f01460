"""Worked by hand: what a token after an answer says, and what right and wrong answers count."""

import torch
from torch.testing import assert_close

from mmrl.ops.self_reward import balanced_weights, self_reward

LOGPROBS = torch.tensor([[-1.0, -13.0], [-22.5, -1.0], [torch.nan, -18.0]])
PROBE = torch.tensor([[False, True], [True, False], [False, True]])
REWARD = torch.tensor([1.0, 0.0, 1.0])


def test_score():
    # .1 (-13 + 23), .1 (-22.5 + 23), .1 (-18 + 23)
    score = self_reward(LOGPROBS, -23.0, PROBE, 0.1)
    assert_close(score, torch.tensor([1.0, 0.05, 0.5]))
    assert_close((score - REWARD).square().mean(), torch.tensor(0.0841667))
    assert_close(self_reward(LOGPROBS, torch.full((3, 2), -23.0), PROBE, 0.1), score)
    assert self_reward(LOGPROBS, -23.0, PROBE & False, 0.1).tolist() == [0, 0, 0]


def test_both_classes_count_the_same():
    # two right and one wrong: 3 / (2 * 2) and 3 / (2 * 1)
    weights = balanced_weights(REWARD == 1, torch.ones(3).bool(), 2, 1)
    assert_close(weights, torch.tensor([0.75, 1.5, 0.75]))
    error = (self_reward(LOGPROBS, -23.0, PROBE, 0.1) - REWARD).square()
    assert_close((weights * error).mean(), torch.tensor(0.06375))
    assert balanced_weights(REWARD == 1, torch.tensor([True, False, False]), 1, 0).tolist() == [0.5, 0, 0]
