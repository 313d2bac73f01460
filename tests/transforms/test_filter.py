"""Dropping groups without an advantage, and asking for others."""

import logging

import pytest

from mmrl.core.types import Collector, Context, Episode, Prompt, Sampling
from mmrl.transforms.dynamic_sampling import DynamicSampling
from mmrl.transforms.filter import DropZeroVariance, KeepPassRates


def group(number, *rewards, **extra):
    return [
        Episode(Prompt(f"toy/train/{number}"), number, i, reward=reward, scores={"exact": reward > 0.5}, **extra)
        for i, reward in enumerate(rewards)
    ]


def context(collector=None):
    return Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=2, collector=collector or Collector())


def numbers(episodes):
    return list(dict.fromkeys(episode.group for episode in episodes))


class Supply(Collector):
    """Further prompts: each round gives the next of the prepared groups; other ranks hold the items `elsewhere`."""

    def __init__(self, *groups, elsewhere=()):
        self.groups, self.elsewhere, self.asked = list(groups), elsewhere, []

    def gather(self, items):
        return [*items, *self.elsewhere]

    def collect_prompts(self, count):
        self.asked.append(count)
        given, self.groups = self.groups[:count], self.groups[count:]
        return [episode for members in given for episode in members]


START = group(0, 1.0, 1.0) + group(1, 0.0, 1.0) + group(2, 0.0, 0.0) + group(3, 0.1 + 0.2, 0.3)


def test_drop_zero_variance():
    out = DropZeroVariance()(START, context())
    assert numbers(out) == [1] and len(out) == 2
    assert numbers(DropZeroVariance(tolerance=0)(START, context())) == [1, 3]  # 0.1 + 0.2 != 0.3
    assert DropZeroVariance()(group(0, 1.0), context()) == []
    assert numbers(DropZeroVariance()(group(2, 0.0, 1.0)[:1] + START[2:4] + group(2, 0.0, 1.0)[1:], context())) == [
        2,
        1,
    ]


def test_drop_by_score():
    mixed_reward = group(0, 0.6, 0.9)
    assert numbers(DropZeroVariance()(mixed_reward, context())) == [0]
    assert DropZeroVariance("exact")(mixed_reward, context()) == []
    with pytest.raises(KeyError, match=r"'format'.*'toy/train/0'.*exact"):
        DropZeroVariance("format")(mixed_reward, context())


def test_dynamic_sampling_until_enough():
    supply = Supply(group(4, 0, 0), group(5, 0, 1), group(6, 1, 0), group(7, 1, 1), group(8, 0, 1), group(9, 1, 0))
    out = DynamicSampling()(START, context(supply))
    # 4 came, 1 was mixed: asks for 3 (5 and 6 are mixed), then for 1 (7 is not), then for 1 (8 is)
    assert supply.asked == [3, 1, 1]
    assert numbers(out) == [1, 5, 6, 8] and len(out) == 8


def test_dynamic_sampling_after_drop_with_the_number_given():
    supply = Supply(group(4, 0, 1), group(5, 0, 1))
    dropped = DropZeroVariance()(START, context())
    assert numbers(DynamicSampling(num_groups=2)(dropped, context(supply))) == [1, 4]
    # enough at once: asks for no more, keeps no more than wanted
    supply = Supply()
    assert numbers(DynamicSampling(num_groups=1)(dropped + group(9, 0, 1), context(supply))) == [1]
    assert supply.asked == []


def test_dynamic_sampling_is_bounded_and_says_so(caplog):
    supply = Supply(*(group(10 + i, 1, 1) for i in range(20)))
    with caplog.at_level(logging.WARNING):
        out = DynamicSampling(num_groups=3, max_rounds=2)(START, context(supply))
    assert numbers(out) == [1] and supply.asked == [2, 2]
    assert "1 of 3 groups after 2 rounds" in caplog.text


def test_processes_keep_the_first_groups_of_all_of_them():
    # this process has the mixed groups 1 and 9, the other one has 2 and 12: the first three of all are 1, 2 and 9
    ctx = context(Supply(elsewhere=[2, 12]))
    assert numbers(DynamicSampling(num_groups=3)(group(1, 0, 1) + group(9, 0, 1), ctx)) == [1, 9]
    assert numbers(DynamicSampling(num_groups=2)(group(1, 0, 1) + group(9, 0, 1), ctx)) == [1]
    # two more are wanted over both
    ctx = context(supply := Supply(group(13, 0, 1), elsewhere=[2, 12]))
    DynamicSampling(num_groups=6, max_rounds=1)(group(1, 0, 1) + group(9, 0, 1), ctx)
    assert supply.asked == [2]


def test_errors_are_left_out():
    broken = group(4, 0, 1)
    broken[0].ended = "error"
    supply = Supply(broken, group(5, 0, 1))
    assert numbers(DynamicSampling(num_groups=2, max_rounds=2)(group(1, 0, 1), context(supply))) == [1, 5]


def test_refusals():
    with pytest.raises(RuntimeError, match="only the training loop collects further prompts"):
        DynamicSampling()(START, context())
    with pytest.raises(ValueError, match=r"\[1\] were given twice"):
        DynamicSampling()(START, context(Supply(group(1, 0, 1))))
    with pytest.raises(ValueError, match=r"dynamic_sampling\.num_groups"):
        DynamicSampling(num_groups=0)


def test_keep_pass_rates_between_two_bounds():
    groups = [group(0, 1, 1, 1, 0, 0), group(1, 1, 0, 0, 0, 0), group(2, 0, 0, 0, 0, 0), group(3, 1, 1, 1, 1, 1)]
    everyone = [episode for members in groups for episode in members]
    assert numbers(KeepPassRates(0.2, 0.8)(everyone, context())) == [0, 1]  # the bounds are inside
    assert numbers(KeepPassRates(0.3, 1.0, score_name="exact")(everyone, context())) == [0, 3]
    with pytest.raises(ValueError, match="min_rate must be <= max_rate"):
        KeepPassRates(0.9, 0.1)
