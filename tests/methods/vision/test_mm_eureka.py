"""MM-Eureka's recipe: reward, advantage and accuracy filter by hand."""

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0, group_size=8)


@pytest.fixture(scope="module")
def data():
    return compose(["recipe=mm_eureka", "run_dir=same"]).data


def group(exact, form, key=0):
    scores = [{"exact": float(e), "format": float(f)} for e, f in zip(exact, form)]
    return [Episode(Prompt("p"), key, i, scores=each) for i, each in enumerate(scores)]


def test_reward_and_advantage_by_hand(data):
    """R = accuracy + .5 format: three right ones of 1.5, three of .5, two of 0, mean .75; 8/7 (R - mean) each."""
    episodes = group([1, 1, 0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 0, 0, 1])
    rewards = instantiate(data.reward)(episodes)
    assert rewards == [1.5, 1.5, 0.5, 0.5, 0.5, 0.0, 0.0, 1.5]
    annotator = instantiate(data.annotators.group_advantage)
    rows = Batch(
        episode=torch.arange(8), group=torch.zeros(8).long(), episode_reward=torch.tensor(rewards),
        action_mask=torch.ones(8, 1).bool(),
    )  # fmt: skip
    a, b, c = 6 / 7, 2 / 7, 6 / 7
    expected = torch.tensor([a, a, -b, -b, -b, -c, -c, a])
    assert_close(annotator(rows, CTX)["advantages"][:, 0], expected)
    same = annotator(rows.with_columns(episode_reward=torch.full((8,), 1.5)), CTX)
    assert_close(same["advantages"], torch.zeros(8, 1))


def test_groups_that_are_too_easy_or_too_hard_are_dropped(data):
    keep = instantiate(data.transforms.accuracy)
    rates = {0: 1, 1: 10, 2: 20, 3: 2}  # right ones of 20: .05, .5, 1 and .1, whatever their format is
    episodes = [e for key, n in rates.items() for e in group([1] * n + [0] * (20 - n), [1] * 20, key)]
    assert {episode.group for episode in keep(episodes, CTX)} == {1, 3}
