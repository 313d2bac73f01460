"""Send an evaluation to the loggers of a run: its metrics, samples and videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.evaluation.report.result import EvaluationResult
from mmrl.evaluation.samples import group_samples
from mmrl.loggers.base import SampleLogger

MAX_GROUPS = 32  # prompts in a table


def send_evaluation(
    loggers: Sequence[Any],
    result: Mapping[str, Any],
    evaluation: EvaluationResult,
    score: str | None,
    videos: Sequence[Path] = (),
) -> None:
    """Send the last checkpoint's metrics as evaluate/*, the samples of its first prompts, and the videos.

    Args:
        loggers: of the run; those that are no `SampleLogger`, as that of metrics.csv, are left out.
        result: what is in evaluation.json.
        evaluation: protocol and episodes.
        score: score of 0 or 1 that says whether an episode succeeded; None when there is none.
        videos: files of this evaluation; those that an earlier one left in the folder show other weights.
    """
    title = list(evaluation.episodes)[-1]
    at = result["checkpoints"][title]
    step = at["optimiser_steps"] or 0
    metrics = {
        f"evaluate/{decode}/{name}/{key}": value
        for decode, evaluators in result["metrics"][title].items()
        for name, values in evaluators.items()
        for key, value in values.items()
    }
    for logger in loggers:
        if not isinstance(logger, SampleLogger):
            continue
        logger.log_metrics(metrics, step=step)  # type: ignore[attr-defined]  # Lightning's
        for episodes in evaluation.episodes[title].values():
            groups = [{"iteration": at["epoch"], **group} for group in group_samples(episodes, score)[:MAX_GROUPS]]
            if groups:
                logger.log_samples(groups, step)
        for file in videos:
            logger.log_video(file.stem, file, step)
        logger.finalize("success")  # type: ignore[attr-defined]
