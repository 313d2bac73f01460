"""Override the configured evaluation from the command line, and compute the metrics of a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from mmrl.core.types import Episode, Sampling
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.metrics.by_task import group_by_task
from mmrl.evaluation.metrics.pass_at_k import PassAtK
from mmrl.evaluation.metrics.success_rate import SuccessRate

Metrics = Mapping[str, Mapping[str, Mapping[str, float]]]
"""decode -> evaluator -> metrics."""

TaskMetrics = Mapping[str, Metrics]
"""decode -> task -> evaluator -> metrics."""


def override_evaluation(
    held_out: HeldOut, training: Sampling, count: int | None, num_samples: int | None, decodes: Sequence[str]
) -> HeldOut:
    """Override the configured evaluation with another number of problems or samples, or other decodes.

    With several samples per problem, configured decodes that do not sample are left out unless `decodes` names them,
    and pass@k is computed for every success rate. A `PassAtK` of the configuration keeps each k up to `num_samples`,
    and is removed if it has no such k.

    Args:
        held_out: as configured.
        training: of the run, for decodes that the evaluation does not name.
        count: held-out problems; None as configured.
        num_samples: per problem; None as configured.
        decodes: names in `held_out.sampling`, or "sample", "argmax", "mean"; empty for all that are configured.
    """
    out = copy.copy(held_out)
    out.count, out.num_samples = count or held_out.count, num_samples or held_out.num_samples
    out.sampling = {name: _decode(name, held_out, training) for name in decodes or held_out.sampling}
    if out.num_samples > 1 and not decodes:
        # greedy samples of one problem are all equal: only decodes that sample remain
        stochastic = {name: sampling for name, sampling in out.sampling.items() if sampling.decode == "sample"}
        out.sampling = stochastic or {"sample": _decode("sample", held_out, training)}
    if num_samples is not None:
        out.evaluators = _limit_ks(held_out.evaluators, num_samples)
    if out.num_samples > 1:
        # pass@k for k = 1, 2, 4, ... below num_samples, and num_samples
        ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256) if k < out.num_samples] + [out.num_samples]
        rates = {name: part for name, part in held_out.evaluators.items() if isinstance(part, SuccessRate)}
        passes: dict[str, Evaluator] = {
            f"{name}_pass": PassAtK(ks, rate.score_name, rate.level) for name, rate in rates.items()
        }
        out.evaluators = {**out.evaluators, **passes}
    return out


def _limit_ks(evaluators: Mapping[str, Evaluator], num_samples: int) -> dict[str, Evaluator]:
    """Replace every pass@k by one that this number of samples suffices for; leave it out if there is none."""
    out: dict[str, Evaluator] = {}
    for name, part in evaluators.items():
        if not isinstance(part, PassAtK):
            out[name] = part
        elif ks := [k for k in part.ks if k <= num_samples]:
            out[name] = replace(part, ks=ks)
    return out


def _decode(name: str, held_out: HeldOut, training: Sampling) -> Sampling:
    if name in held_out.sampling:
        return held_out.sampling[name]
    ways = get_args(Sampling.__annotations__["decode"]) or ("sample", "argmax", "mean")
    if name not in ways:
        raise ValueError(f"decode={name}: give {', '.join(ways)} or a configured one of {sorted(held_out.sampling)}")
    return replace(training, decode=name)  # type: ignore[arg-type]


EpisodesByDecode = Mapping[str, Sequence[Episode]]
"""decode -> light episodes."""


def success_rates(held_out: HeldOut) -> dict[str, SuccessRate]:
    """Select the evaluators that are success rates."""
    return {name: part for name, part in held_out.evaluators.items() if isinstance(part, SuccessRate)}


def compute_metrics(held_out: HeldOut, played: EpisodesByDecode) -> dict[str, dict[str, dict[str, float]]]:
    """Compute the metrics of every evaluator for the episodes of each decode."""
    return {
        decode: {name: dict(evaluator(episodes)) for name, evaluator in held_out.evaluators.items()}
        for decode, episodes in played.items()
    }


def compute_task_metrics(
    held_out: HeldOut, played: EpisodesByDecode
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Compute the success rates of each task; empty if there is only one task."""
    parts = {decode: group_by_task(episodes) for decode, episodes in played.items()}
    if all(len(tasks) < 2 for tasks in parts.values()):
        return {}
    return {
        decode: {
            task: {name: rate(episodes) for name, rate in success_rates(held_out).items()}
            for task, episodes in tasks.items()
        }
        for decode, tasks in parts.items()
    }
