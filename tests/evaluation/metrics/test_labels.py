"""F1 of predicted labels by hand and against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.labels.f1 import LabelF1


def answer(number, labels, right, ended="done"):
    prompt = Prompt(f"guard/held_out/{number}", info={"labels": labels})
    return Episode(
        prompt, number, 0, scores={f"right_{name}": float(value) for name, value in right.items()}, ended=ended
    )


def test_f1_by_hand():
    """x: TP, FN, TN; z: FP, TP, unknown. TP 2, FP 1, FN 1: precision 2/3, recall 2/3, F1 4/6."""
    episodes = [
        answer(0, {"x": 1.0, "z": 0.0}, {"x": 1, "z": 0}),
        answer(1, {"x": 1.0, "z": 1.0}, {"x": 0, "z": 1}),
        answer(2, {"x": 0.0, "z": float("nan")}, {"x": 1}),
        answer(3, {"x": 1.0, "z": 1.0}, {}, ended="error"),
    ]
    expected = {"mean": 2 / 3, "precision": 2 / 3, "recall": 2 / 3, "n": 5, "errors": 1}
    assert LabelF1()(episodes) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_f1_is_that_of_scikit_learn(share):
    rng = np.random.default_rng(0)
    labels, predicted = (rng.random((40, 2)) < share for _ in range(2))
    episodes = [
        answer(i, dict(zip("xz", map(float, one))), dict(zip("xz", one == two)))
        for i, (one, two) in enumerate(zip(labels, predicted))
    ]
    result = LabelF1()(episodes)
    for name, function in {"mean": f1_score, "precision": precision_score, "recall": recall_score}.items():
        assert result[name] == pytest.approx(function(labels, predicted, average="micro", zero_division=0))


def test_answers_without_labels_are_refused():
    with pytest.raises(ValueError, match="guard/held_out/0' has no labels"):
        LabelF1()([Episode(Prompt("guard/held_out/0"), 0, 0)])
