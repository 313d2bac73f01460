"""The data module of `mmrl evaluate`, and the checks that its results can be compared."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.commands.cli import CLI
from mmrl.commands.evaluation.arguments import EvaluationRequest
from mmrl.commands.evaluation.boundary import add_logprobs
from mmrl.config.dry_calls.data import check_data
from mmrl.core.errors import ConfigError
from mmrl.evaluation.protocol import Protocol, describe_evaluation
from mmrl.evaluation.report import checkpoint_metrics
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.evaluation.samples import RecordSamples
from mmrl.evaluation.video.recording import enable_drawing
from mmrl.files.contract import ENVIRONMENT, NAME, differences, read_contract, warn
from mmrl.runs.versions import environment


def build_evaluation_data(cli: CLI, request: EvaluationRequest) -> Any:
    """Copy the run's data module with the requested evaluation; raise where its results cannot be compared."""
    data = prepare_data(cli.datamodule, request)
    add_logprobs(cli, request, data.evaluation)
    contract = data.task.contract()
    for folder in _runs(request):
        check_contract(folder, contract, request.accept)
    if contract and (stated := cli.model.policy.read_training_simulator()):  # type: ignore[union-attr]
        _refuse_other_simulator(str(getattr(cli.model.policy, "path", "policy")), stated, contract, request.accept)
    return data


def check_request(data: Any, reward: Any, request: EvaluationRequest) -> None:
    """Refuse what depends on the request and the data module alone, before the run's policy is built."""
    check_data(data, reward)
    prepared = prepare_data(data, request)
    if request.video:
        _check_render(prepared)


def prepare_data(data: Any, request: EvaluationRequest) -> Any:
    """Copy a data module with the requested evaluation, and refuse what it cannot measure."""
    data = copy.copy(data)
    if getattr(data, "evaluation", None) is None:
        raise ConfigError(
            f"{request.folder}: data.evaluation is null in config.yaml, so there is nothing to measure; train with "
            "evaluation=NAME, where `mmrl list evaluations` shows the names"
        )
    compared = request.compare is not None or request.against is not None
    # the evaluation of the run, with count, samples and decodes of the request
    try:
        held_out = checkpoint_metrics.override_evaluation(
            data.evaluation, data.sampling, request.count, request.num_samples, request.decodes
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # episodes are recorded for the report
    rates = checkpoint_metrics.success_rates(held_out).values()
    recorder = RecordSamples(next((rate.score_name for rate in rates), None))
    held_out.transforms = {**held_out.transforms, "samples": recorder}
    data.evaluation = held_out
    if compared and not checkpoint_metrics.success_rates(held_out):
        raise ConfigError(
            "compare=... needs a score of 0 or 1 (an evaluator SuccessRate in data.evaluation.evaluators). Means, such "
            "as returns, are measured one after the other: mmrl evaluate RUN checkpoint=start, then mmrl evaluate RUN"
        )
    return data


def check_contract(folder: Path, contract: dict[str, Any], accepted: tuple[str, ...] = ()) -> None:
    """Refuse a simulator that differs from that of training; warn of accepted differences and of other versions."""
    before = read_contract(folder)
    if before is None and contract:
        raise ConfigError(f"{folder / NAME} is missing, which states the simulator of training; restore it")
    _refuse_other_simulator(str(folder / NAME), before or {}, contract, accepted)
    if versions := differences(read_contract(folder, ENVIRONMENT) or environment(), environment()):
        warn(f"Not what {folder} was trained with:", versions)


def _refuse_other_simulator(
    source: str, trained: Mapping[str, Any], contract: Mapping[str, Any], accepted: tuple[str, ...]
) -> None:
    lines = differences(trained, contract)
    refused = [line for line in lines if line.split(":")[0] not in accepted]
    if refused:
        warn(f"{source} is of a training in another simulator than this one:", refused)
        raise ConfigError(
            f"{len(refused)} entries differ from {source}; set the sim's options to those of the training, for "
            f"example sim.renderer=ray, or measure under the other simulator with accept={refused[0].split(':')[0]}"
        )
    if lines:
        warn("Accepted differences from the simulator of training:", lines)


def read_comparison(request: EvaluationRequest, data: Any) -> EvaluationResult | None:
    """Read the evaluation to compare with; raise, before any episode, where its protocol differs."""
    if request.against is None:
        return None
    try:
        other = EvaluationResult.read(request.against)
    except ValueError as error:
        raise ConfigError(f"compare={request.against}: {error}") from error
    entries = {
        **describe_evaluation(data.task, data.evaluation),
        "instructions": other.protocol.entries.get("instructions"),
    }
    check_protocol(request.against, Protocol(entries), other.protocol)
    return other


def check_protocol(folder: Path, here: Protocol, other: Protocol) -> None:
    """Refuse to compare numbers that were measured under different protocols, and name what differs."""
    if lines := here.incompatible_entries(other):
        warn(f"{folder} was measured under another protocol ({other.hash}, here {here.hash}):", lines)
        raise ConfigError(
            f"compare={folder}: {len(lines)} entries of the protocol differ; measure both alike, with the same count, "
            "decode, number of samples and simulator"
        )


def _runs(request: EvaluationRequest) -> list[Path]:
    """The folders of the runs whose checkpoints are measured."""
    folders = [request.folder]
    if request.compare is not None:
        other = next((f for f in request.compare.resolve().parents[:3] if (f / "config.yaml").exists()), None)
        if other is not None and other != request.folder.resolve():
            folders.append(other)
    return folders


def _check_render(data: Any) -> None:
    sim = getattr(data.task, "sim", None)
    if sim is None:
        raise ConfigError(f"video=true: task {data.task.name!r} has no simulator to record a video of")
    env = enable_drawing(sim).make(1)
    try:
        env.reset(seed=[0])
        env.render(0, 32)
    except (TypeError, ValueError, AttributeError) as error:  # it has no such method, or draws no image
        raise ConfigError(
            f"video=true: the environment of {sim.name!r} draws no images: {error}; an environment of gymnasium needs "
            "'rgb_array' among metadata['render_modes'], another simulator the method render(i, size)"
        ) from error
    finally:
        env.close()
