"""The learning curve of a run: every curve of the legend is visible."""

import csv

import numpy as np
import pytest
from PIL import Image

from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.curves import plot_run

NAMES = ("iterations", "rollout/reward", "val/greedy/exact/mean", "val/greedy/exact/lower", "val/greedy/exact/upper")


def draw(folder, rewards):
    folder.mkdir()
    with (folder / "metrics.csv").open("w") as file:
        rows = ([i, reward, 0.4 + i / 20, 0.3 + i / 20, 0.5 + i / 20] for i, reward in enumerate(rewards))
        csv.writer(file).writerows([NAMES, *rows])
    return np.asarray(Image.open(plot_run(folder)).convert("RGB")).astype(int)


def drawn_columns(image, colour):
    """Number of columns of pixels in which the colour occurs."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((abs(image - wanted).max(axis=2) < 8).any(axis=0).sum())


@pytest.mark.parametrize("rewards", [(0.1, 0.2, 0.6, 0.9), (-3.0, -2.5, -1.0, -1.2), (20.0, 35.0, 80.0, 120.0)])
def test_training_reward_and_held_out_rate_are_both_visible(rewards, tmp_path):
    image = draw(tmp_path / "run", rewards)
    # the legend alone has about 40 columns of a colour
    assert drawn_columns(image, COLOURS[0]) > 800 and drawn_columns(image, COLOURS[1]) > 300


def test_a_reward_outside_of_shares_has_a_labelled_axis_at_the_right(tmp_path):
    left, both = draw(tmp_path / "left", (0.1, 0.2, 0.6, 0.9)), draw(tmp_path / "both", (10, 20, 60, 90))
    margins = (image[100:600, -60:].max(axis=2) for image in (left, both))  # numbers of an axis at the right are black
    assert [bool((margin < 60).any()) for margin in margins] == [False, True]
