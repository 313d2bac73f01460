"""A recording without rewards gets them from comparisons of its pictures."""

import json

import numpy as np
import pytest
import torch

from mmrl.data.offline.relabelling import RewardedDataset
from mmrl.methods.control.offline_rl_vlm_f.comparers import FunctionComparer, RewardComparer
from mmrl.methods.control.offline_rl_vlm_f.relabelling import LABELS, PreferenceRelabelling, measure_agreement, rescale
from tests.methods.control.offline_rl_vlm_f.recording import bright_episodes

HERE = "tests.methods.control.offline_rl_vlm_f.recording"
SMALL = {"num_pairs": 80, "members": 2, "features": 16, "passes": 12, "batch_size": 16, "lr": 3e-3}
CPU = torch.device("cpu")


def bright(**options):
    return PreferenceRelabelling(FunctionComparer(f"{HERE}:prefer_bright"), **{**SMALL, **options})


def test_rewards_by_hand():
    """Scores -0.5, 0 and 0.5 to [0, 1]: (r + 0.5) / 1; to [-1, 1]: twice that less 1."""
    scores = [np.array([-0.5, 0.0]), np.array([0.5])]
    assert [each.tolist() for each in rescale(scores, 0, 1)] == [[0.0, 0.5], [1.0]]
    assert [each.tolist() for each in rescale(scores, -1, 1)] == [[-1.0, 0.0], [1.0]]
    assert [each.tolist() for each in rescale([np.zeros(2)], 0, 1)] == [[0.0, 0.0]]


def test_the_order_of_all_transitions_is_learned_from_pairs(tmp_path):
    unlabelled = bright_episodes(rewards=False)
    labelled, metrics = bright().relabel(unlabelled, 0, tmp_path, CPU)
    assert isinstance(labelled, RewardedDataset) and len(labelled) == len(unlabelled)
    learned = np.concatenate([labelled[i].rewards for i in range(6)])
    brightness = np.concatenate([bright_episodes()[i].rewards for i in range(6)])
    assert learned.dtype == np.float32 and learned.min() == 0 and learned.max() == 1
    assert np.corrcoef(learned, brightness)[0, 1] > 0.9
    assert metrics["relabelling/pairs"] == 64 and metrics["relabelling/accuracy"] > 0.9
    assert metrics["relabelling/unclear"] == 0 and "relabelling/rank_correlation" not in metrics
    assert (labelled[2].actions == unlabelled[2].actions).all() and labelled.features == unlabelled.features


def test_labels_stay_in_the_folder_and_nobody_is_asked_again(tmp_path):
    first, _ = bright(passes=1).relabel(bright_episodes(rewards=False), 0, tmp_path, CPU)
    rows = [json.loads(line) for line in (tmp_path / LABELS).read_text().splitlines()]
    assert len(rows) == 80 and {row["label"] for row in rows} == {0, 1} and rows[0]["goal"] == "a bright room"
    silent = PreferenceRelabelling(FunctionComparer(f"{HERE}:prefer_badly"), **{**SMALL, "passes": 1})
    again, _ = silent.relabel(bright_episodes(rewards=False), 0, tmp_path, CPU)
    named = PreferenceRelabelling(silent.comparer, **{**SMALL, "passes": 1}, labels=str(tmp_path / LABELS))
    third, _ = named.relabel(bright_episodes(rewards=False), 0, tmp_path / "other", CPU)
    for number in range(6):
        np.testing.assert_array_equal(first[number].rewards, again[number].rewards)
        np.testing.assert_array_equal(first[number].rewards, third[number].rewards)
    with pytest.raises(ValueError, match=r"80 of 80 pairs have no label.*returned 7"):
        silent.relabel(bright_episodes(rewards=False), 1, tmp_path, CPU)  # other pairs than the stored ones


def test_unclear_pairs_are_left_out(tmp_path):
    dataset = bright_episodes()
    often_unclear = PreferenceRelabelling(RewardComparer(0.0, margin=100.0), **{**SMALL, "passes": 1})
    _, metrics = often_unclear.relabel(dataset, 0, tmp_path, CPU)
    rows = [json.loads(line) for line in (tmp_path / LABELS).read_text().splitlines()]
    unclear = sum(row["label"] == -1 for row in rows)
    assert 0 < unclear < 80 and metrics["relabelling/unclear"] == pytest.approx(unclear / 80)
    assert metrics["relabelling/pairs"] == round(0.8 * (80 - unclear))
    nobody = PreferenceRelabelling(FunctionComparer(f"{HERE}:prefer_nothing"), **SMALL)
    with pytest.raises(ValueError, match=r"0 of 80 labels are clear"):
        nobody.relabel(bright_episodes(), 3, tmp_path / "none", CPU)


def test_agreement_is_the_correlation_of_ranks():
    """Ranks 0, 1, 2 against 1, 0, 2: sum of squared differences 2, so 1 - 6 * 2 / (3 * 8) = 0.5 (Spearman)."""
    dataset = bright_episodes(1, 3)
    dataset.episodes[0].rewards = np.array([5.0, 6.0, 9.0], np.float32)
    assert measure_agreement(dataset, [np.array([0.3, 0.1, 0.4])])["rank_correlation"] == pytest.approx(0.5)


@pytest.mark.parametrize("wrong", [{"low": 1.0}, {"held_out": 1.0}, {"num_pairs": 1}, {"lr": 0.0}, {"members": 0}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"data\.relabelling\.{next(iter(wrong))}"):
        bright(**wrong)
