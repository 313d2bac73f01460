"""Measure a run's checkpoints on held-out problems."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrl.callbacks.progress import Progress
from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import CLI, load_run
from mmrl.commands.evaluation.arguments import EvaluationRequest, parse
from mmrl.commands.evaluation.boundary import Boundaries, print_boundaries, write_figures
from mmrl.commands.evaluation.data import (
    build_evaluation_data,
    check_protocol,
    check_request,
    read_comparison,
)
from mmrl.commands.evaluation.folder import build_folder, names_no_run
from mmrl.commands.evaluation.loggers import send_evaluation
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import require_packages
from mmrl.evaluation.boundary.comparison import compare_boundaries
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.protocol import Protocol, describe_evaluation, digest_instructions
from mmrl.evaluation.report import terminal_table
from mmrl.evaluation.report.checkpoint_metrics import compute_metrics, compute_task_metrics, success_rates
from mmrl.evaluation.report.evaluator_plot import save_plot
from mmrl.evaluation.report.html_report import HtmlReport
from mmrl.evaluation.report.result import EpisodesByCheckpoint, EvaluationResult
from mmrl.evaluation.report.single_answer import describe_single_answer
from mmrl.evaluation.report.tables import format_metrics
from mmrl.evaluation.statistics.paired import PairedComparison, compare_checkpoints
from mmrl.evaluation.video.clips import compose_video
from mmrl.evaluation.video.encoder import PACKAGES as VIDEO_PACKAGES
from mmrl.evaluation.video.recording import EpisodeVideos, record_videos
from mmrl.evaluation.video.scenes import select_episodes
from mmrl.files.atomic import check_inside
from mmrl.files.contract import ENVIRONMENT, warn, write_contract
from mmrl.runs.checkpoint_file import CheckpointError, read_checkpoint, read_manifest
from mmrl.runs.versions import environment, versions
from mmrl.runs.writable import check_writable, writable


def evaluate(arguments: Sequence[str]) -> dict[str, Any]:
    """Print tables; write evaluation.json, protocol.json, episodes.jsonl, report.html and videos with video=true.

    Everything is written into the run's folder. Returns what is in evaluation.json.
    """
    composed = names_no_run(arguments)  # then all code was named by the command line itself
    request = parse(build_folder(arguments) if composed else arguments)
    check_writable(request.folder, "mmrl evaluate")
    if request.video:
        require_packages(VIDEO_PACKAGES, "video=true")
        check_inside(request.folder / "videos", request.folder)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # hints about loggers and devices
    trust = request.trust or composed
    config = request.folder / "config.yaml"
    check = partial(check_request, request=request)
    cli = load_run(config, request.arguments, loggers=request.send, trust=trust, check=check)
    loggers, cli.trainer.loggers = cli.trainer.loggers, []  # type: ignore[attr-defined]  # metrics.csv is of training
    if request.checkpoint is None:
        write_contract(request.folder, cli.datamodule.task.contract())  # type: ignore[attr-defined]
        write_contract(request.folder, environment(), ENVIRONMENT)
    data = build_evaluation_data(cli, request)
    other = read_comparison(request, data)
    cli.trainer.callbacks = [Progress()] if Console().is_terminal else []  # type: ignore[attr-defined]
    episodes: dict[str, Any] = {} if other is None else {"before": list(other.episodes.values())[-1]}
    for title, path in request.checkpoints.items():
        _load(cli, path, request.trust)
        cli.trainer.validate(cli.model, data, verbose=False)
        episodes[title] = data.evaluation.latest
    # one sample of each problem is paired, several give pass@k curves
    compared, boundaries = _compare(data.evaluation, episodes)
    evaluation = EvaluationResult(_protocol(cli, data, episodes), episodes)
    if other is not None:
        # the instructions of the episodes are known only now
        check_protocol(request.against, evaluation.protocol, other.protocol)  # type: ignore[arg-type]
        if lines := evaluation.protocol.other_differences(other.protocol):
            warn(f"The same protocol as {request.against}, but not the same policy or place:", lines)
    result = _result(request, data, evaluation, compared, getattr(cli.model.policy, "path", None))
    result["boundary"] = {name: [part.plain() for part in parts] for name, parts in boundaries.items()}
    if cli.trainer.is_global_zero:
        _print(request, result, compared, boundaries)
        _print_single_answers(episodes)
        with writable(request.folder, "mmrl evaluate"):
            _write_numbers(request.folder, evaluation, result)
    videos_by_decode = _record_videos(cli, request, data, episodes) if request.video else {}
    if cli.trainer.is_global_zero:
        report = HtmlReport(request.folder, evaluation, result, compared, _score(data), videos_by_decode)
        with writable(request.folder, "mmrl evaluate"):
            files = _write_report(request, report)
            _write_plots(request.folder, data.evaluation.evaluators, episodes, boundaries)
            send_evaluation(loggers, result, evaluation, _score(data), files)
    return result


def _compare(held_out: HeldOut, episodes: EpisodesByCheckpoint) -> tuple[dict[str, list[PairedComparison]], Boundaries]:
    """Compare two checkpoints in pairs of single samples, or by pass@k where there are several of each problem."""
    if len(episodes) < 2:
        return {}, {}
    sides = (episodes["before"], episodes["after"], success_rates(held_out))
    return (compare_checkpoints(*sides), {}) if held_out.num_samples == 1 else ({}, compare_boundaries(*sides))


def _load(cli: CLI, path: Path | None, trust: bool) -> None:
    if path is None:
        return
    try:
        load_policy(cli.model.policy, str(path), trust=trust)  # type: ignore[arg-type]
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _protocol(cli: CLI, data: Any, episodes: EpisodesByCheckpoint) -> Protocol:
    instructions = digest_instructions(
        {f"{title}/{decode}": e for title, decodes in episodes.items() for decode, e in decodes.items()}
    )
    policy: Any = cli.model.policy
    entries = {**describe_evaluation(data.task, data.evaluation), "instructions": instructions}
    return Protocol(json.loads(json.dumps(entries)), json.loads(json.dumps(policy.contract())), environment())


def _record_videos(
    cli: CLI, request: EvaluationRequest, data: Any, episodes: EpisodesByCheckpoint
) -> dict[str, dict[str, EpisodeVideos]]:
    """Videos by decode and title: of the first initial states and of those that the report shows."""
    out: dict[str, dict[str, EpisodeVideos]] = {}
    score = _score(data)
    decodes = request.decodes or list(data.evaluation.sampling)[:1]  # images cost more than playing
    for title, path in request.checkpoints.items():
        _load(cli, path, request.trust)
        for decode in decodes:
            last = list(episodes.values())[-1][decode]
            slots = dict.fromkeys([*range(request.video_episodes), *select_episodes(last, score)])
            out.setdefault(decode, {})[title] = record_videos(cli.trainer, cli.model, data, decode, list(slots))
    return out


def _score(data: Any) -> str | None:
    return next((rate.score_name for rate in success_rates(data.evaluation).values()), None)


def _result(
    request: EvaluationRequest,
    data: Any,
    evaluation: EvaluationResult,
    compared: dict[str, list[PairedComparison]],
    policy: str | None,
) -> dict[str, Any]:
    held_out = data.evaluation
    # what was measured, how, and the numbers by checkpoint and decode
    entries = evaluation.protocol.entries
    return {
        "run": str(request.folder),
        "protocol": evaluation.protocol.hash,
        "checkpoints": {
            title: _describe_checkpoint(path, request.trust, policy) for title, path in request.checkpoints.items()
        },
        "against": None if request.against is None else str(request.against),
        "task": data.task.name,
        **{name: entries["problems"][name] for name in ("split", "offset", "count")},
        "num_samples": held_out.num_samples,
        "seed": held_out.seed,
        "decodes": entries["decodes"],
        "metrics": {title: compute_metrics(held_out, decodes) for title, decodes in evaluation.episodes.items()},
        "tasks": {title: compute_task_metrics(held_out, decodes) for title, decodes in evaluation.episodes.items()},
        "comparison": {
            name: [
                row | each.plain()
                for row, each in zip(json.loads(terminal_table.to_json([p.comparison for p in parts])), parts)
            ]
            for name, parts in compared.items()
        },
        "contract": data.task.contract(),
        "versions": versions(),
    }


def _describe_checkpoint(path: Path | None, trust: bool, policy: str | None) -> dict[str, Any]:
    if path is None:
        return {"path": policy or "random weights", "optimiser_steps": None, "epoch": None}
    state = read_manifest(path) or read_checkpoint(path, trust)
    return {"path": str(path), "optimiser_steps": state.get("global_step"), "epoch": state.get("epoch")}


def _print(
    request: EvaluationRequest,
    result: dict[str, Any],
    compared: dict[str, list[PairedComparison]],
    boundaries: Boundaries,
) -> None:
    console = Console(width=None if Console().is_terminal else 140, markup=False, emoji=False)
    for name, parts in compared.items():
        console.print(terminal_table.format_table([part.comparison for part in parts], f"{request.folder}: {name}"))
        for part in parts:
            console.print(str(part), highlight=False)
    print_boundaries(str(request.folder), boundaries)
    if not compared and not boundaries:
        for title, values in result["metrics"].items():
            heading = f"{request.folder}, {title}, held-out"
            console.print(format_metrics(values, heading, result["tasks"][title], result["num_samples"]))
    console.print(f"protocol {result['protocol']}", style="bold", highlight=False)


def _print_single_answers(episodes: EpisodesByCheckpoint) -> None:
    for title, decodes in episodes.items():
        for decode, measured in decodes.items():
            if text := describe_single_answer(measured):
                Console(soft_wrap=True).print(f"{title}, {decode}: {text}", highlight=False, markup=False)


def _write_numbers(folder: Path, evaluation: EvaluationResult, result: dict[str, Any]) -> None:
    """Write metrics, protocol and episodes, before videos are recorded, which can fail."""
    for file in evaluation.write(folder, result):
        Console(soft_wrap=True, markup=False, emoji=False).print(f"written: {file}", highlight=False)


def _write_plots(
    folder: Path, evaluators: dict[str, Any], episodes: EpisodesByCheckpoint, boundaries: Boundaries
) -> None:
    """Write the plots of evaluators: of the last checkpoint, with the one that it is compared with."""
    paths = write_figures(folder, boundaries)
    measured = list(episodes.values())
    for decode, last in measured[-1].items():
        for name, evaluator in evaluators.items():
            first = measured[0].get(decode, last)
            if evaluator.plots_alone or first is not last:
                path = save_plot(folder, decode, name, evaluator, first, last)
                paths += [path] if path is not None else []
    for path in paths:
        Console(soft_wrap=True, markup=False, emoji=False).print(f"written: {path}", highlight=False)


def _write_report(request: EvaluationRequest, report: HtmlReport) -> list[Path]:
    """Write the report, and a video of each decode that was recorded; returns the videos."""
    console, files = Console(soft_wrap=True, markup=False, emoji=False), []
    console.print(f"written: {report.write()}", highlight=False)
    for decode, videos in report.videos.items():
        first = {title: part.select(range(request.video_episodes)) for title, part in videos.items()}
        fps = next(iter(videos.values())).fps
        path = request.folder / "videos" / f"{decode}.mp4"
        if report.writer.write(compose_video(first, report.score_name), path, fps / 2) is None:
            continue
        files.append(path)
        states = len(next(iter(first.values())).videos)
        console.print(
            f"written: {path} (the first {states} held-out initial states in order, none chosen by its outcome; "
            "half speed)",
            highlight=False,
        )
    report.writer.warn_failures()
    return files
