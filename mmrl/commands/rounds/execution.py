"""Run the steps of a rounds file, each in a folder and a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mmrl.commands.rounds.file import RoundsFile
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.playing import PARTS, REQUEST, PlayRequest, part_path
from mmrl.commands.rounds.receipts import Receipt, check_rows, read_receipt, write_receipt
from mmrl.commands.rounds.recording import COUNTS, RECORDING, RecordRequest
from mmrl.commands.rounds.rows import NAME as ROWS
from mmrl.commands.rounds.rows import Row, group_rows, join_parts, read_rows, write_rows
from mmrl.commands.rounds.schedule import StageRun
from mmrl.commands.rounds.stages import (
    EvaluateStage,
    FilterStage,
    FitStage,
    RecordStage,
    SampleStage,
    ScoreStage,
    WriteStage,
)
from mmrl.commands.rounds.words import (
    build_words,
    derive_step_seed,
    fit_words,
    merge_words,
    play_words,
    score_words,
    seed_words,
    stage_environment,
)
from mmrl.commands.rounds.writing import REPORT, WRITING, WriteRequest
from mmrl.config.compose import compose
from mmrl.core.errors import ConfigError
from mmrl.files.atomic import remove_path, write_file
from mmrl.files.contract import ENVIRONMENT
from mmrl.files.contract import NAME as CONTRACT
from mmrl.runs import child_process
from mmrl.runs.run_folder import last_checkpoint


class StageFailed(RuntimeError):
    """A step's process ended with an error, which it has printed."""


@dataclass
class Execution:
    """Runs steps in order, and skips those that have ended.

    Args:
        file: the rounds file.
        steps: of the file.
        run_dir: absolute path of the folder of all steps.
    """

    file: RoundsFile
    steps: Sequence[StageRun]
    run_dir: Path

    def run(self, step: StageRun) -> Receipt:
        """Run a step unless it has ended, and return its receipt."""
        folder = self.run_dir / step.name
        receipt = read_receipt(folder)
        if receipt is None:
            folder.mkdir(parents=True, exist_ok=True)
            runs = {
                "fit": self._fit,
                "filter": self._filter,
                "evaluate": self._evaluate,
                "write": self._write,
                "record": self._record,
            }
            closed = step.gate is not None and not self._receipt(step.gate).result["accepted"]
            run = self._skip if closed else runs.get(step.kind, self._play)
            receipt = write_receipt(folder, run(step, folder))
        remove_path(folder / PARTS)
        return receipt

    def _words(self, step: StageRun) -> list[str]:
        return build_words(self.file, step, self.run_dir)

    def _receipt(self, name: str) -> Receipt:
        receipt = read_receipt(self.run_dir / name)
        if receipt is None:
            raise ConfigError(f"{self.run_dir / name}: the receipt of a step that has ended is missing; restore it")
        return receipt

    def _weights(self, step: StageRun) -> str | None:
        """Return the checkpoint that a step takes: of a fit, or the base; None for the policy as it is configured."""
        name = self._receipt(step.weights).weights if step.weights is not None else self.file.values["base"]
        if name is None:
            return None
        path = self.run_dir / name if step.weights is not None else Path(name).absolute()
        if not path.is_file():
            raise ConfigError(f"{step.place}.weights: {path} is missing; restore it, or begin again in another run_dir")
        return str(path)

    def _relative(self, weights: str | None) -> str | None:
        """Return the path of a checkpoint below the folder of the rounds, which can be moved; a base keeps its own."""
        path = Path(weights) if weights is not None else None
        return str(path.relative_to(self.run_dir)) if path and path.is_relative_to(self.run_dir) else weights

    def _rows(self, names: Sequence[str], place: str) -> list[Path]:
        return [check_rows(self.run_dir / name, self._receipt(name), place) for name in names]

    def _start(self, step: StageRun, arguments: Sequence[str]) -> None:
        """Run a command of mmrl for a step, and wait for its end."""
        try:
            child_process.run([sys.executable, "-m", "mmrl", *arguments], stage_environment(step.name))
        except subprocess.CalledProcessError as error:
            raise StageFailed(f"{step.place} (round {step.round}) failed; its last lines are above") from error

    def _skip(self, step: StageRun, folder: Path) -> Receipt:
        """A step behind a gate that is closed; its weights are those that it would have begun with."""
        return Receipt(self._relative(self._weights(step)), note="skipped: its program was refused")

    def _write(self, step: StageRun, folder: Path) -> Receipt:
        """Let a program be written, with what the rounds before led to."""
        stage = step.stage
        assert isinstance(stage, WriteStage)
        before = [each for each in self.steps[: step.number] if each.stage_name == step.stage_name]
        request = WriteRequest(
            words=[*play_words(self._words(step)), *seed_words(self.file, step), f"run_dir='{folder}'"],
            stage={key: value for key, value in asdict(stage).items() if key != "overrides"},
            round=step.round,
            seed=derive_step_seed(self.file, step),
            before=[self._outcome(each) for each in before],
        )
        write_file(folder / WRITING, json.dumps(asdict(request), indent=2) + "\n")
        self._start(step, ["rounds", f"--stage={folder}"])
        report = json.loads((folder / REPORT).read_text())
        return Receipt(result={"accepted": report["accepted"]}, note=report["note"])

    def _record(self, step: StageRun, folder: Path) -> Receipt:
        """Record episodes of a simulator, behind those of earlier stages."""
        stage = step.stage
        assert isinstance(stage, RecordStage)
        request = RecordRequest(
            words=[*play_words(self._words(step)), *seed_words(self.file, step), f"run_dir='{folder}'"],
            weights=None if stage.expert else self._weights(step),
            seed=derive_step_seed(self.file, step),
            adds=[str(self.run_dir / name) for name in step.adds],
            **{name: getattr(stage, name) for name in ("expert", "noise", "count", "offset")},
        )
        write_file(folder / RECORDING, json.dumps(asdict(request), indent=2) + "\n")
        self._start(step, ["rounds", f"--stage={folder}"])
        return Receipt(result=json.loads((folder / COUNTS).read_text()))

    def _outcome(self, step: StageRun) -> dict[str, Any]:
        """What a write step and the steps behind its gate led to: folders, means, folders of trained policies."""
        behind = [each for each in self.steps if each.gate == step.name and read_receipt(self.run_dir / each.name)]
        results = [self._receipt(each.name).result for each in behind if each.kind == "evaluate"]
        fits = [each for each in behind if each.kind == "fit" and not self._receipt(each.name).note]
        return {
            "folder": str(self.run_dir / step.name),
            "results": [dict(result) for result in results if "mean" in result],
            "fits": [str(self.run_dir / each.name) for each in fits],
        }

    def _play(self, step: StageRun, folder: Path) -> Receipt:
        """Sample or score, and join the parts."""
        stage, seed = step.stage, derive_step_seed(self.file, step)
        if isinstance(stage, SampleStage):
            request = PlayRequest(
                words=[*play_words(self._words(step)), *seed_words(self.file, step), f"run_dir='{folder}'"],
                weights=self._weights(step),
                seed=seed,
                **{name: getattr(stage, name) for name in ("part", "count", "offset", "num_samples")},
            )
        else:
            assert isinstance(stage, ScoreStage)
            request = PlayRequest(
                words=[*score_words(self._words(step)), *seed_words(self.file, step), f"run_dir='{folder}'"],
                reads=[str(path) for path in self._rows(step.reads, step.place)],
                part=stage.part,
            )
        write_file(folder / REQUEST, json.dumps(asdict(request), indent=2) + "\n")
        self._start(step, ["rounds", f"--stage={folder}"])
        parts = sorted((folder / PARTS).glob("[0-9]*.jsonl"))
        assert parts == [part_path(folder, number) for number in range(len(parts))]
        digest = join_parts(folder / ROWS, parts)
        return Receipt(rows=digest, result=_describe_rows(read_rows(folder / ROWS)))

    def _filter(self, step: StageRun, folder: Path) -> Receipt:
        stage = step.stage
        assert isinstance(stage, FilterStage)
        rows = [row for path in self._rows(step.reads, step.place) for row in read_rows(path)]
        result = filter_rows(stage, rows, derive_step_seed(self.file, step), step.place)
        added = [row for path in self._rows(step.adds, step.place) for row in read_rows(path)]
        digest = write_rows(folder / ROWS, [*added, *result])
        return Receipt(rows=digest, result={"rows_read": len(rows), **_describe_rows([*added, *result])})

    def _fit(self, step: StageRun, folder: Path) -> Receipt:
        stage = step.stage
        assert isinstance(stage, FitStage)
        weights, rows, count = self._weights(step), None, 0
        if step.reads:
            (rows,) = self._rows(step.reads, step.place)
            count = self._receipt(step.reads[0]).result["rows"]
            if not count:
                return Receipt(self._relative(weights), note="skipped: no rows")
        words = self._fit_words(step, rows, weights)
        if stage.passes is not None:
            words = merge_words(words, [f"trainer.max_epochs={self._iterations(words, stage.passes, count)}"])
        words += [*seed_words(self.file, step), f"run_dir='{folder}'"]
        last = last_checkpoint(folder)
        words.append(f"ckpt_path='{last}'" if last.is_file() else "overwrite=true")
        self._start(step, ["fit", *words])
        return Receipt(self._relative(str(last)), result={"rows": count} if step.reads else {})

    def _fit_words(self, step: StageRun, rows: Path | None, weights: str | None) -> list[str]:
        pairs = any(each.pairs for each in self.steps if each.name in step.reads)
        return fit_words(self._words(step), step, rows, pairs, weights)

    def _iterations(self, words: Sequence[str], passes: float, count: int) -> int:
        return max(1, round(passes * count / compose(words).data.num_prompts))

    def _evaluate(self, step: StageRun, folder: Path) -> Receipt:
        stage = step.stage
        assert isinstance(stage, EvaluateStage)
        weights = self._weights(step)
        words = [*play_words(self._words(step)), f"seed={self.file.values['seed']}", f"run_dir='{folder}'"]
        checkpoint = [] if weights is None else [f"checkpoint={weights}"]
        if step.weights is not None:  # what its simulator was in training
            for name in (CONTRACT, ENVIRONMENT):
                source = self.run_dir / step.weights / name
                if source.is_file():
                    write_file(folder / name, source.read_text())
        self._start(step, ["evaluate", *words, *stage.options(), *checkpoint])
        result = json.loads((folder / "evaluation.json").read_text())
        (metrics,) = result["metrics"].values()
        return Receipt(result=_select_metric(metrics, self.file.values["metric"], step.place))


def _describe_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """Count rows and problems, and the mean reward of completions."""
    rewards = [row["reward"] for row in rows if "reward" in row]
    numbers: dict[str, Any] = {"rows": len(rows), "problems": len(group_rows(rows))}
    return numbers | ({"reward": math.fsum(rewards) / len(rewards)} if rewards else {})


def _select_metric(metrics: Mapping[str, Mapping[str, Mapping[str, float]]], name: str | None, place: str) -> dict:
    """Return the mean of an evaluator with its interval: DECODE/EVALUATOR, by default the first that has a mean.

    An evaluator of other numbers, such as returns, has them as DECODE/EVALUATOR/NUMBER, without intervals.
    """
    measured = {f"{decode}/{each}": values for decode, group in metrics.items() for each, values in group.items()}
    means = {key: values for key, values in measured.items() if "mean" in values}
    for key, values in measured.items():
        if key not in means:
            means |= {f"{key}/{each}": {"mean": value} for each, value in values.items()}
    if not means or (name is not None and name not in means):
        raise ConfigError(f"{place}: metric={name} is none of the means of the evaluation, which are {list(means)}")
    metric = name or next(iter(means))
    values = {key: means[metric][key] for key in ("mean", "lower", "upper", "n") if key in means[metric]}
    return {"metric": metric, **values}
