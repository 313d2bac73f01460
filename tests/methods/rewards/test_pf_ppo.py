"""PF-PPO: which answers are kept, weights of rows, and R^2, by hand."""

import warnings

import numpy as np
import pytest
import torch

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Sampling
from mmrl.methods.rewards.pf_ppo import (
    FilteredCorrelation,
    PolicyFiltration,
    ResampleRows,
    determination,
    filter_weights,
    select_reliable,
)
from tasks.preferences.planted import PlantedPreferences
from tests.tasks.replies import reply
from tests.transforms.rows.test_rows import Elsewhere, context, rows

LAWS = [lambda: ResampleRows("max_min"), lambda: PolicyFiltration()]

SCORES = [1.0, 3.0, 2.0, -2.0]
TASK = PlantedPreferences()


def test_the_weights_by_hand():
    scores = np.array(SCORES)
    # 1, 9, 4, 4 of 18
    assert filter_weights(scores, "power") == pytest.approx([0.055556, 0.5, 0.222222, 0.222222], abs=1e-6)
    assert filter_weights(scores, "max_min") == pytest.approx([0, 0.5, 0, 0.5])
    # 0.1, 0.4, 0.1, 0.1 of 0.7
    expected = [0.142857, 0.571429, 0.142857, 0.142857]
    assert filter_weights(scores, "max_random") == pytest.approx(expected, abs=1e-6)
    for equal in (np.ones(4), np.zeros(4)):
        for method in ("power", "max_min", "max_random"):
            assert filter_weights(equal, method) == pytest.approx([0.25] * 4)


def test_the_answers_that_are_kept_by_hand():
    rng = derive_rng("test")
    assert select_reliable(SCORES, "best", rng) == [1]
    assert select_reliable(SCORES, "best_worst", rng) == [1, 3]
    pairs = [select_reliable(SCORES, "best_random", derive_rng("test", i)) for i in range(300)]
    assert all(1 in pair and len(pair) == 2 for pair in pairs)
    others = [next(i for i in pair if i != 1) for pair in pairs]
    assert {i: others.count(i) for i in (0, 2, 3)} == pytest.approx(dict.fromkeys((0, 2, 3), 100), abs=35)
    assert select_reliable([1.0, 1.0, 1.0], "best_worst", rng) == [0, 2]
    assert select_reliable([1.0], "best_worst", rng) == [0]


def test_extremes_explain_the_truth_better_by_hand():
    """Centred scores -.375, -.075, .025, .425 and truth -1/2, -1/2, 1/2, 1/2: .45^2 / (.3275 * 1) = .618321."""
    scores, truth = [0.1, 0.4, 0.5, 0.9], [0, 0, 1, 1]
    assert determination(scores, truth) == pytest.approx(0.618321, abs=1e-6)
    assert determination([0.1, 0.9], [0, 1]) == pytest.approx(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert determination([1, 1], [0, 1]) == determination([0, 1], [1, 1]) == determination([1], [0]) == 0.0
        assert determination([], []) == 0.0
    group = [reply(TASK[0], "a") for _ in scores]
    for episode, score, gold in zip(group, scores, truth):
        episode.scores = {"reward_model": score, "gold": gold}
    measured = FilteredCorrelation("reward_model")(group)
    assert measured["all"] == pytest.approx(0.618321, abs=1e-6) and measured["best_worst"] == pytest.approx(1.0)


def test_filtration_is_of_each_prompt():
    episodes = []
    for group, rewards in enumerate((SCORES, [0.0, 5.0, 1.0])):
        for reward in rewards:
            episode = reply(TASK[group], "a")
            episode.group, episode.reward = group, reward
            episodes.append(episode)
    ctx = Context(TASK, None, None, Sampling(), seed=0, iteration=0)
    filtered = PolicyFiltration()(episodes, ctx)
    assert [(e.group, e.reward) for e in filtered] == [(0, 3.0), (0, -2.0), (1, 0.0), (1, 5.0)]


def test_rows_are_drawn_with_their_weights():
    """Of 400 iterations with 4 rows each, 1600 draws: 800 expected for the weight 1/2, standard deviation 20."""
    batch = rows([0, 0, 0, 0], SCORES)
    rewards = torch.cat([ResampleRows()(batch, context(i))["episode_reward"] for i in range(400)])
    assert len(rewards) == 1600
    for score, weight in zip(SCORES, (1 / 18, 0.5, 4 / 18, 4 / 18)):
        assert (rewards == score).sum().item() == pytest.approx(1600 * weight, abs=80)
    extremes = ResampleRows("max_min")(batch, context())["episode_reward"]
    assert set(extremes.tolist()) <= {3.0, -2.0}


def test_two_processes_draw_as_one():
    whole = rows([0, 0, 1, 1], SCORES)
    alone = ResampleRows()(whole, context())["episode"].tolist()
    parts = [whole.select(torch.arange(2)), whole.select(torch.arange(2, 4))]
    columns = [
        np.stack([part[name].numpy().astype(np.float64) for name in ("group", "episode", "episode_reward")])
        for part in parts
    ]
    both = []
    for rank in (0, 1):
        collector = Elsewhere((1 - rank, columns[1 - rank]))
        both += ResampleRows()(parts[rank], context(rank=rank, size=2, collector=collector))["episode"].tolist()
    assert both == alone


def test_wrong_arguments_are_refused():
    for build in (
        lambda: PolicyFiltration("worst"),
        lambda: ResampleRows("uniform"),
        lambda: ResampleRows(exponent=0.0),
    ):
        with pytest.raises(ValueError, match=r"policy_filtration|resample_rows"):
            build()
    batch = rows([0, 0], [1.0, 2.0])
    with pytest.raises(ValueError, match="one row"):
        ResampleRows()(batch.with_columns(step=torch.tensor([0, 1])), context())
