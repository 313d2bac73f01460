"""Standard deviation of a task and masked negatives, by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import NO_GROUP, Batch
from mmrl.core.types import Collector, Context, Prompt, Sampling
from mmrl.methods.advantages.qwenlong import NegativeMask, TaskColumn
from mmrl.rollouts.text.scripted import scripted_episode
from mmrl.schedules import EntropyBand
from tests.laws.example import Example

LAWS = [Example(NegativeMask(0.5)), Example(GroupAdvantage("batch", scale_by="baseline_group"))]

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4)
SPARSE, FRACTIONAL = [1.0, 0, 0, 1, 1, 1, 1, 1], [0.2, 0.4, 0.6, 0.8]


def annotate(reward, task, ctx=CTX, group=None, episode=None):
    rows = len(reward)
    batch = Batch(
        action_mask=torch.ones(rows, 1).bool(),
        episode_reward=torch.tensor(reward),
        group=torch.arange(rows) // 4 if group is None else torch.tensor(group),
        episode=torch.arange(rows) if episode is None else torch.tensor(episode),
        baseline_group=torch.tensor(task),
    )
    return GroupAdvantage("batch", epsilon=0, scale_by="baseline_group")(batch, ctx)["advantages"][:, 0]


def test_the_std_of_a_task_by_hand():
    # six of eight are right: std sqrt(.75 * .25) = .433013, and .5 / .433013 = 1.154701; the second group is equal
    # .2, .4, .6, .8: squares .09, .01, .01, .09, std sqrt(.05) = .223607; .3 / std = 1.341641, .1 / std = .447214
    sparse = [1.154701, -1.154701, -1.154701, 1.154701, 0, 0, 0, 0]
    fractional = [-1.341641, -0.447214, 0.447214, 1.341641]
    out = annotate(SPARSE + FRACTIONAL, [7] * 8 + [3] * 4)
    assert_close(out, torch.tensor(sparse + fractional), atol=1e-6, rtol=0)


def test_an_episode_of_several_rows_counts_once():
    out = annotate([1.0, 0, 0, 1, 1, 1], [7] * 6, group=[0] * 6, episode=[0, 1, 2, 3, 0, 0])
    assert_close(out, torch.tensor([1.0, -1, -1, 1, 1, 1]))  # std 1/2 of 1, 0, 0, 1


def test_the_rewards_are_those_of_all_processes():
    class Two(Collector):
        def gather(self, items):
            return [*items, *((7, 1.0) for _ in range(4)), (3, 5.0)]

    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4, world_size=2, collector=Two())
    assert_close(annotate(SPARSE[:4], [7] * 4, ctx), annotate(SPARSE, [7] * 8)[:4])


def test_the_row_of_a_process_without_episodes_does_not_count():
    out = annotate([1.0, 0, 0, 1, 5, 5], [7] * 5 + [3], group=[0] * 4 + [NO_GROUP] * 2)
    assert_close(out[:4], annotate([1.0, 0, 0, 1], [7] * 4))
    assert out.isfinite().all()


def test_negatives_are_masked_above_the_band_and_restored_below_it():
    advantages = torch.tensor([[0.8], [-0.3], [-0.9], [0.4]])
    batch = Batch(action_mask=torch.ones(4, 1).bool(), advantages=advantages)
    band = EntropyBand(start=1.0, low=0.2, high=0.5, step=1.0)
    weights = [band(0)]
    for entropy in (0.6, 0.7, 0.3, 0.1, 0.4):  # above, above, within, below, within
        band.observe({"train/entropy/mean": entropy})
        weights.append(band(0))
    assert weights == [1, 0, 0, 0, 1, 1]
    for weight, expected in ((0.0, [0.8, 0, 0, 0.4]), (1.0, [0.8, -0.3, -0.9, 0.4])):
        assert_close(NegativeMask(weight)(batch, CTX)["advantages"][:, 0], torch.tensor(expected))
    part = Batch(action_mask=torch.tensor([[True, False]]), advantages=torch.tensor([[-0.5, 2.0]]))
    assert_close(NegativeMask(0.5)(part, CTX)["advantages"], torch.tensor([[-0.25, 0.0]]))
    with pytest.raises(ValueError, match=r"weight must be in \[0, 1\]"):
        NegativeMask(-0.1)


def test_rows_of_a_task_share_a_number():
    prompts = [Prompt(f"toy/train/{i}", info={"task": name}) for i, name in enumerate(("sums", "words", "sums"))]
    out = TaskColumn()([scripted_episode(prompt, "1") for prompt in prompts], CTX)
    first, second, third = (int(e.turns[0].completion.extra["baseline_group"]) for e in out)
    assert first == third != second
    with pytest.raises(ValueError, match="no info 'task'"):
        TaskColumn()([scripted_episode(Prompt("toy/train/0"), "1")], CTX)
