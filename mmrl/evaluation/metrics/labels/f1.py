"""F1, precision and recall of predicted labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score


def f1_score(hits: float, false_alarms: float, misses: float) -> tuple[float, float, float]:
    """Return F1 = 2 TP / (2 TP + FP + FN), precision TP / (TP + FP) and recall TP / (TP + FN); 0 where undefined."""
    total, predicted, positive = 2 * hits + false_alarms + misses, hits + false_alarms, hits + misses
    return (2 * hits / total if total else 0.0, hits / predicted if predicted else 0.0, hits / max(positive, 1))


@dataclass(frozen=True)
class LabelF1(Evaluator):
    """F1 of the labels that a classifier predicts, the `mean`, over all labels of all answers (micro average).

    Beside it stand `precision`, `recall`, n, the number of labels that are known, and errors. It reads the scores
    `right_NAME` of the rollout `ScoredLabels`, kind=multi_label, and the labels of the problems.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        hits = false_alarms = misses = known = 0
        for episode in drop_errors(episodes):
            labels = episode.prompt.info.get("labels")
            if not isinstance(labels, dict):
                raise ValueError(f"{episode.prompt.key!r} has no labels; F1 needs a task of answers with labels")
            for name, label in labels.items():
                if math.isnan(label):
                    continue
                right = get_binary_score(episode, f"right_{name}") > 0
                known += 1
                hits += right and label > 0.5
                misses += not right and label > 0.5
                false_alarms += not right and label <= 0.5
        f1, precision, recall = f1_score(hits, false_alarms, misses)
        return {
            "mean": f1,
            "precision": precision,
            "recall": recall,
            "n": float(known),
            "errors": count_errors(episodes),
        }
