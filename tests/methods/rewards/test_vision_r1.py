"""Vision-R1's reward, advantages and stages by hand."""

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.methods.rewards.vision_r1 import hard_format_result

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0, group_size=4)


@pytest.mark.parametrize(
    ("exact", "form", "truncated", "reward"),
    [(1, 1, False, 1), (1, 0, False, 0), (0, 1, False, 0), (1, 1, True, 0), (0.5, 1, False, 0)],
)
def test_format_and_result_count_together(exact, form, truncated, reward):
    assert hard_format_result(exact, form, truncated) == reward


def test_advantages_of_one_right_completion_of_four():
    """Mean 1/4, population std sqrt(3)/4: 3/4 over it is sqrt(3), -1/4 is -1/sqrt(3); sample std 1/2: 1.5 and -.5."""
    rows = Batch(
        episode=torch.arange(4), group=torch.zeros(4).long(), episode_reward=torch.tensor([1.0, 0, 0, 0]),
        action_mask=torch.ones(4, 1).bool(),
    )  # fmt: skip
    for scale, expected in (("std", [1.732051] + [-0.577350] * 3), ("sample", [1.5] + [-0.5] * 3)):
        found = GroupAdvantage(scale, epsilon=0.0)(rows, CTX)["advantages"][:, 0]
        assert_close(found, torch.tensor(expected), atol=1e-6, rtol=0)
    wrong = rows.with_columns(episode_reward=torch.zeros(4))
    assert_close(GroupAdvantage()(wrong, CTX)["advantages"], torch.zeros(4, 1))


def test_each_stage_doubles_the_limit_and_halves_the_completions():
    data = compose(["recipe=vision_r1", "run_dir=same"]).data
    count, limit = (instantiate(data.group_size), instantiate(data.sampling.max_tokens))
    assert [(count(i), limit(i)) for i in (0, 29, 30, 59)] == [(16, 20), (16, 20), (8, 40), (8, 40)]
    assert {count(i) * limit(i) for i in range(60)} == {320}
