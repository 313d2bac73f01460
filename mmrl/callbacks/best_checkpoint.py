"""Keep the weights that no later checkpoint is measurably better than, and end a run that no longer improves."""

from __future__ import annotations

import logging
import shutil
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import EarlyStopping

from mmrl.core.errors import ConfigError, check_at_least, check_interval
from mmrl.data.rollout_data import RolloutData
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.statistics.headline import NO_MEANS, PREFIX, choose_headline
from mmrl.evaluation.statistics.improvement import BestValues, Improvement, measure_problems
from mmrl.files.atomic import replace_file, replace_folder
from mmrl.runs.run_folder import best_checkpoint

log = logging.getLogger(__name__)
_KEY = "trainer.callbacks.best"


class BestCheckpoint(EarlyStopping):
    """Best checkpoint by paired tests: later weights replace the best ones only where they are significantly better.

    The best ones are first those of the start. After every evaluation each problem's value is compared with its value
    under the best weights (`compare_problems`), and the weights replace checkpoints/best.ckpt where the p-value is at
    most (1 - level) / comparisons. So the probability that a run has any replacement by weights that are no better is
    at most 1 - level (Bonferroni), over the problems and draws of the evaluation. best.ckpt has weights and no state of
    optimisers; last.ckpt is what a run resumes from.

    Args:
        monitor: held-out metric val/<decode>/<evaluator>/<metric>, a mean over problems; None for the mean, or the
            return, of the first evaluator under the first decode.
        mode: max where higher values are better, min where lower ones are.
        level: probability in (0, 1) that no replacement of a run is false.
        comparisons: evaluations after the first one among which 1 - level is divided; None for those of the run's
            length. A run that is resumed with more iterations divides it among all of its new length.
        patience: evaluations in a row without a replacement after which the run ends; None goes on to the last
            iteration. Slow progress is not lost, since every evaluation is compared with the best weights and not
            with those of the evaluation before.
    """

    def __init__(
        self,
        monitor: str | None = None,
        mode: str = "max",
        level: float = 0.95,
        comparisons: int | None = None,
        patience: int | None = None,
    ):
        check_interval(_KEY, "(0, 1)", level=level)
        counts = {"patience": patience, "comparisons": comparisons}
        check_at_least(1, _KEY, **{name: count for name, count in counts.items() if count is not None})
        if mode not in ("max", "min"):
            raise ValueError(f"{_KEY}.mode must be max or min, got {mode!r}")
        if monitor is not None:
            parts = monitor.split("/")
            if len(parts) < 4 or parts[0] != PREFIX.rstrip("/") or parts[-1] in NO_MEANS:
                raise ValueError(
                    f"{_KEY}.monitor={monitor!r} must be a mean, val/<decode>/<evaluator>/<metric>, as "
                    "val/greedy/exact/mean; metrics.csv has the names"
                )
        super().__init__(monitor or "", mode=mode, patience=10**9 if patience is None else patience)
        self.monitor: str | None = monitor  # type: ignore[assignment]  # Lightning's is a str
        self.level, self.comparisons = level, comparisons
        self.error_rate = 1 - level  # of one comparison, once the number of comparisons is known
        self.best = BestValues()
        self._measured: Any = None  # the episodes that were compared last
        self._ends: str | None = None  # why the run ends with this iteration
        self._unsaved = False  # whether the best weights are those of this iteration and not yet in the file
        self._file: Path | None = None
        self._stored: str | None = None  # the best weights of the run that this one resumes

    # ---------------------------------------------------------------- Lightning's side

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse a run without the evaluation, decode or evaluator that is monitored."""
        self._file = best_checkpoint(Path(trainer.default_root_dir))
        if stage != "fit":
            return
        held_out = _held_out(trainer)
        if held_out is None:
            raise ConfigError(
                f"{_KEY} compares held-out problems, and data.evaluation is null; name an evaluation, or take the "
                f"callback out with {_KEY}=null"
            )
        if self.monitor is not None:
            _, decode, evaluator, *_ = self.monitor.split("/")
            for kind, name, names in (
                ("decode", decode, held_out.sampling),
                ("evaluator", evaluator, held_out.evaluators),
            ):
                if name not in names:
                    raise ConfigError(f"{_KEY}.monitor={self.monitor}: no {kind} {name!r}; there are {sorted(names)}")
        if self.comparisons is None and trainer.max_epochs in (None, -1):
            raise ConfigError(
                f"{_KEY}.comparisons: a run without trainer.max_epochs has no number of evaluations; give one"
            )
        # now, since the learner changes the interval before the last iteration
        planned = -(-(trainer.max_epochs or 1) // (trainer.check_val_every_n_epoch or 1))
        self.error_rate = (1 - self.level) / (self.comparisons or max(planned, 1))

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the evaluation of the start, which the learner makes after the callbacks' own hooks of the start."""
        if self._stored is not None:
            self._restore_file(trainer)
        self._observe(trainer, pl_module, trainer.current_epoch)
        self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Compare, so that the row of metrics of this iteration has the result."""
        if not self._should_skip_check(trainer):
            self._observe(trainer, pl_module, trainer.current_epoch + 1)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save at the end of an iteration, before the checkpoint from which a run resumes."""
        self._observe(trainer, pl_module, trainer.current_epoch + 1)  # of a run that ends before its last iteration
        self._save(trainer)
        if self._ends is not None:
            trainer.should_stop, self.stopped_epoch, self.stopping_reason_message = (
                True,
                trainer.current_epoch,
                self._ends,
            )

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._observe(trainer, pl_module, trainer.current_epoch)  # of a run that another callback ended
        self._save(trainer)
        if trainer.is_global_zero and self.best.values:
            print(f"best weights: iteration {self.best.iteration}, {self._file}", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {**asdict(self.best), "file": str(self._file)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        self._stored, self.best = state.pop("file"), BestValues(**state)

    # ---------------------------------------------------------------- the comparison

    def _observe(self, trainer: L.Trainer, learner: Any, iteration: int) -> None:
        """Compare the latest evaluation, if it is a new one, with that of the best weights."""
        held_out = _held_out(trainer)
        if held_out is None or not held_out.latest or held_out.latest is self._measured:
            return
        self._measured, rate, had_values = held_out.latest, self.error_rate, bool(self.best.values)
        result = self.best.challenge(self._measure(held_out), iteration, rate, self.mode)
        self._unsaved = not self.best.waited
        if had_values and not result.pairs:
            log.warning("%s: the evaluation has other problems than that of the best weights; it begins again", _KEY)
        if result.pairs:
            numbers = {
                "difference": result.difference,
                "p_value": result.p_value,
                "detectable": result.detectable(rate),
            }
            learner.report({f"best/{name}": value for name, value in numbers.items()})
        learner.report({"best/iteration": float(self.best.iteration)})
        if self.best.waited >= self.patience:
            self._ends = self._format_reason(result, rate)

    def _save(self, trainer: L.Trainer) -> None:
        if self._unsaved:
            trainer.save_checkpoint(self._file, weights_only=True)  # type: ignore[arg-type]  # known since setup
            self._unsaved = False

    def _measure(self, held_out: HeldOut) -> dict[str, float]:
        """Value of every problem under the weights that were measured last."""
        monitor = self.monitor or self._choose_monitor(held_out)
        _, decode, evaluator, metric = monitor.split("/", 3)
        values = measure_problems(held_out.evaluators[evaluator], metric, held_out.latest[decode])
        return {key: value for key, value in values.items() if isfinite(value)}

    def _choose_monitor(self, held_out: HeldOut) -> str:
        decode = next(iter(held_out.sampling))
        names = [
            f"{PREFIX}{decode}/{name}/{key}"
            for name, evaluator in held_out.evaluators.items()
            for key in evaluator(held_out.latest[decode])
        ]
        if (monitor := choose_headline([decode], held_out.evaluators, names)) is None:
            raise ConfigError(f"{_KEY}.monitor: the evaluation has no mean; it has {', '.join(names[:12])}")
        return monitor

    def _restore_file(self, trainer: L.Trainer) -> None:
        """Bring the best weights of the resumed run into this run's folder; without them begin again."""
        stored, self._stored = Path(self._stored or ""), None
        assert self._file is not None
        if not self.best.values or self._file.exists():
            return
        if not stored.exists():
            log.warning("%s: %s is gone, so the next evaluation is the first to compare with", _KEY, stored)
            self.best = BestValues()
            return
        if trainer.is_global_zero and stored.is_dir():
            with replace_folder(self._file) as folder:
                shutil.copytree(stored, folder, dirs_exist_ok=True)
        elif trainer.is_global_zero:
            with stored.open("rb") as source, replace_file(self._file) as target:
                shutil.copyfileobj(source, target)

    def _format_reason(self, result: Improvement, rate: float) -> str:
        size = result.detectable(rate)
        return (
            f"no evaluation since iteration {self.best.iteration} was better than its weights beyond the noise; the "
            f"last differs by {result.difference:+.3g} on {result.pairs} problems (p = {result.p_value:.2g}), and "
            f"{size:.3g} would be found with 80 % power"
        )


def _held_out(trainer: L.Trainer) -> HeldOut | None:
    data = getattr(trainer, "datamodule", None)
    return data.evaluation if isinstance(data, RolloutData) else None
