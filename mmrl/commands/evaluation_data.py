"""The data module that `mmrl evaluate` plays, and everything because of which it may not be played."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from mmrl.commands.cli import CLI
from mmrl.commands.evaluation_arguments import Asked
from mmrl.compatibility import ENVIRONMENT, NAME, differences, read_contract, warn
from mmrl.errors import ConfigError
from mmrl.evaluation.protocol import Protocol, describe_evaluation
from mmrl.evaluation.report import checkpoint_metrics
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.runs.versions import environment


def measured_data(cli: CLI, asked: Asked) -> Any:
    """The run's data module with the evaluation that was asked for; refused where it cannot be compared with it."""
    data = copy.copy(cli.datamodule)
    if getattr(data, "evaluation", None) is None:
        raise ConfigError(f"{asked.folder}: this run has no data.evaluation, so there is nothing to measure")
    compared = asked.compare is not None or asked.against is not None
    if compared and (asked.num_samples or data.evaluation.num_samples) > 1:
        raise ConfigError("compare=... pairs one sample per problem; leave num_samples out, or measure one by one")
    try:
        held_out = checkpoint_metrics.override_evaluation(
            data.evaluation, data.sampling, asked.count, asked.num_samples, asked.decodes
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    data.evaluation = held_out
    if compared and not checkpoint_metrics.success_rates(held_out):
        raise ConfigError(
            "compare=... needs a score of 0 or 1 (an evaluator SuccessRate in data.evaluation.evaluators)"
        )
    for folder in _runs(asked):
        check_contract(folder, data.task.contract(), asked.accept)
    if asked.video:
        _check_render(data)
    return data


def check_contract(folder: Path, contract: dict[str, Any], accepted: tuple[str, ...] = ()) -> None:
    """Refuse another simulator than the one of the run's training; say what is accepted, and other versions."""
    before = read_contract(folder)
    if before is None and contract:
        raise ConfigError(f"{folder / NAME} is missing: the run does not say in which simulator it was trained")
    lines = differences(before or {}, contract)
    refused = [line for line in lines if line.split(":")[0] not in accepted]
    if refused:
        warn(f"{folder} was trained in another simulator than the one at hand:", refused)
        raise ConfigError(
            f"{len(refused)} entries differ from {folder / NAME}; set the sim's options to those of the training, for "
            f"example sim.renderer=ray, or measure under the other simulator with accept={refused[0].split(':')[0]}"
        )
    if lines:
        warn("Accepted, though the training's simulator was another one:", lines)
    if versions := differences(read_contract(folder, ENVIRONMENT) or environment(), environment()):
        warn(f"Not what {folder} was trained with:", versions)


def earlier(asked: Asked, data: Any) -> EvaluationResult | None:
    """The measurement to compare with; refused before anything is played if its protocol is another one."""
    if asked.against is None:
        return None
    try:
        there = EvaluationResult.read(asked.against)
    except ValueError as error:
        raise ConfigError(f"compare={asked.against}: {error}") from error
    known = {
        **describe_evaluation(data.task, data.evaluation),
        "instructions": there.protocol.entries.get("instructions"),
    }
    check_protocol(asked.against, Protocol(known), there.protocol)
    return there


def check_protocol(folder: Path, here: Protocol, there: Protocol) -> None:
    """Refuse to compare numbers that were measured under different protocols, and name what differs."""
    if lines := here.incompatible_entries(there):
        warn(f"{folder} was measured under another protocol ({there.hash}, here {here.hash}):", lines)
        raise ConfigError(
            f"compare={folder}: {len(lines)} entries of the protocol differ; measure both alike, with the same count, "
            "decode, number of samples and simulator"
        )


def _runs(asked: Asked) -> list[Path]:
    """The folders of the runs whose checkpoints are checkpoint_metrics."""
    folders = [asked.folder]
    if asked.compare is not None:
        other = next((f for f in asked.compare.resolve().parents[:3] if (f / "config.yaml").exists()), None)
        if other is not None and other != asked.folder.resolve():
            folders.append(other)
    return folders


def _check_render(data: Any) -> None:
    sim = getattr(data.task, "sim", None)
    if sim is None:
        raise ConfigError(f"video=true: task {data.task.name!r} has no simulator to record a video of")
    env = sim.make(1)
    try:
        env.reset(seed=[0])
        env.render(0, 32)
    except TypeError as error:
        raise ConfigError(f"video=true: the environment of {sim.name!r} has no render(i, size)") from error
    finally:
        env.close()
