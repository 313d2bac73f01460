"""Keep samples of every iteration: prompts, completions with per-token numbers, tool calls, scores."""

from __future__ import annotations

import lightning as L

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import Context
from mmrl.data.collector import Collected
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.loggers.base import SampleLogger
from mmrl.samples.folder import SampleFolder
from mmrl.samples.record import EpisodeRows, SampleFormat, first_groups


class Samples(L.Callback):
    """Write the first groups of an iteration to <run_dir>/rollouts/<iteration>.jsonl; `mmrl show` reads them.

    The groups are the first ones in the order of sampling, whatever they earned. Of several processes the first one
    writes its own. Nothing that is trained on is changed, and no random number is drawn.

    Args:
        run_dir: folder of the run.
        groups: kept of an iteration.
        every_n_iterations: iterations between two files.
        max_tokens: of a completion; of a longer one the first and the last half are kept.
        max_mb: of all files; older iterations are thinned out to every second, fourth, ... one.
    """

    def __init__(
        self, run_dir: str, groups: int = 4, every_n_iterations: int = 1, max_tokens: int = 1024, max_mb: float = 64
    ):
        for name, value, least in (
            ("groups", groups, 1),
            ("every_n_iterations", every_n_iterations, 1),
            ("max_tokens", max_tokens, 2),
        ):
            if value < least:
                raise ValueError(f"trainer.callbacks.samples.{name} must be at least {least}, got {value}")
        check_positive("trainer.callbacks.samples", max_mb=max_mb)
        self.groups, self.every_n_iterations, self.max_tokens = groups, every_n_iterations, max_tokens
        self.folder = SampleFolder(run_dir, int(max_mb * 2**20))

    def on_rollout_end(self, trainer: L.Trainer, collected: Collected, batch: Batch, ctx: Context) -> None:
        """Write the samples of this iteration; the data module calls this when its rows are annotated."""
        if ctx.rank or ctx.iteration % self.every_n_iterations:
            return
        held_out = getattr(trainer, "datamodule").evaluation  # noqa: B009  # Lightning declares no such attribute
        evaluators = {} if held_out is None else held_out.evaluators
        score_name = next((each.score_name for each in evaluators.values() if isinstance(each, SuccessRate)), None)
        rows = EpisodeRows(collected.episodes, batch)
        groups = rows.add_trained(first_groups(collected.sampled, self.groups))
        described = SampleFormat(ctx.policy, score_name, self.max_tokens).describe_groups(groups, rows)
        samples = [{"iteration": ctx.iteration, **group} for group in described]
        self.folder.write(ctx.iteration, samples)
        for logger in trainer.loggers:
            if isinstance(logger, SampleLogger):
                logger.log_samples(samples, trainer.global_step)
