"""`mmrl doctor WORDS`: check every rank of a run, and print the memory plan; one process loads its checkpoint last."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Trainer

from mmrl.commands.cli import CLI
from mmrl.commands.doctor.checks import check_facts, check_shard_groups
from mmrl.commands.doctor.facts import Facts, collect_facts, is_visible
from mmrl.commands.doctor.machine import Finding, print_findings
from mmrl.commands.doctor.meeting import Meeting
from mmrl.commands.doctor.memory import check_memory
from mmrl.commands.doctor.model import check_model
from mmrl.commands.doctor.network import measure_network
from mmrl.commands.plan import PlanRequest, build_plan, parse, parse_run
from mmrl.commands.planning.planning import RunPlan
from mmrl.commands.planning.report import print_report
from mmrl.config.wiring import build_nested
from mmrl.core.errors import ConfigError, is_user_error
from mmrl.distributed import parallel

SECONDS = 60.0
"""That a rank is waited for."""
HARDWARE = ("accelerator", "devices", "num_nodes", "strategy", "precision")


def check_run(arguments: Sequence[str]) -> None:
    """Check all ranks of a run; started by torchrun or Slurm it is one of them, otherwise it starts them.

    Rank 0 prints the findings and the plan, and raises ConfigError with every problem.
    """
    seconds, words = _take_timeout(arguments)
    request = parse(words)
    cli = parse_run(request.words, CLI)
    trainer = build_trainer(cli._plain()["trainer"])
    rank = trainer.global_rank
    try:
        parallel.refuse_strategy(trainer)
        copies, size = parallel.divide(trainer)
        started = parallel.start_processes(trainer)
    except Exception as error:
        if rank == 0:
            raise ConfigError(f"trainer: {' '.join(str(error).split())}") from error
        return  # rank 0 says it
    try:
        facts, findings = examine_ranks(trainer, cli, seconds, started)
        if rank > 0:
            return
        if trainer.world_size > 1:
            findings.append(check_shard_groups(facts, copies, size))
        plan, note = _plan(request)
        if plan is not None:
            findings += check_memory(facts, plan)
        if trainer.world_size == 1 and (plan is None or plan.fits):
            finding = check_model(cli._plain()["model"]["init_args"].get("policy"))
            findings += [] if finding is None else [finding]
    finally:
        for process in started:
            with suppress(OSError):
                process.terminate()
    print_findings(findings, missing="FAIL")
    print()
    if plan is not None:
        print_report(plan, [], None)
    else:
        print(f"no memory plan: {note}")
    problems = [finding.found for finding in findings if not finding.good]
    if plan is not None and not plan.fits:
        problems.append("the run does not fit into memory; `mmrl plan` with the same words names what to change")
    if problems:
        raise ConfigError("; ".join(problems))


def build_trainer(options: Mapping[str, Any]) -> Trainer:
    """Build the run's trainer without callbacks and loggers."""
    hardware = {name: options[name] for name in HARDWARE if options.get(name) is not None}
    if isinstance(hardware.get("strategy"), Mapping):
        hardware["strategy"] = build_nested(hardware["strategy"])
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    try:
        return Trainer(**hardware, **quiet)
    except Exception as error:  # what Lightning finds wrong with devices or strategy
        raise ConfigError(f"trainer: {' '.join(str(error).split())}") from error


def examine_ranks(
    trainer: Trainer, cli: CLI, seconds: float, started: Sequence[Any]
) -> tuple[list[Facts], list[Finding]]:
    """Collect the facts of all ranks, check them, and let the ranks form their process group.

    Returns facts and findings on rank 0, and nothing on the others.
    """
    rank, processes = trainer.global_rank, trainer.world_size
    ports = find_ports(cli._plain()["data"]) if rank == 0 else ()
    local_facts = collect_facts(rank, cli.to_yaml(), cli.config.run_dir, parallel.root_device(trainer), ports)
    if processes == 1:
        return [local_facts], check_facts([local_facts])
    meeting = Meeting(rank, processes, parallel.meeting_place(trainer), seconds, started)
    if rank > 0:
        answer(trainer, meeting, local_facts, seconds)
        return [], []
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=_existing(Path(local_facts.run_dir))) as file:
        meeting.tell("file", file.name)
        meeting.tell("facts", local_facts.to_json())
        facts = [Facts.from_json(text) for text in meeting.read("facts")]
    findings = check_facts(facts)
    good = all(finding.good for finding in findings)
    meeting.tell("go on", str(good))
    if good:
        findings += _check_network(trainer, meeting, seconds)
    meeting.leave()
    return facts, findings


def answer(trainer: Trainer, meeting: Meeting, own: Facts, seconds: float) -> None:
    """Tell rank 0 what this rank finds."""
    visible = is_visible(meeting.ask("file"))
    meeting.tell("facts", replace(own, sees_run_dir=visible).to_json())
    if meeting.ask("go on") == "True":
        meeting.tell("network", measure_network(trainer, dist.PrefixStore("group", meeting.store), seconds))
    meeting.leave()


def _check_network(trainer: Trainer, meeting: Meeting, seconds: float) -> list[Finding]:
    meeting.tell("network", measure_network(trainer, dist.PrefixStore("group", meeting.store), seconds))
    answers = [json.loads(text) for text in meeting.read("network")]
    host, port = parallel.meeting_place(trainer)
    if wrong := [f"rank {rank}: {answer['error']}" for rank, answer in enumerate(answers) if "error" in answer]:
        advice = "check that the nodes reach each other, NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, and firewalls"
        return [Finding("process group", f"{', '.join(wrong[:4])}; {advice}", good=False, essential=True)]
    first = answers[0]
    findings = [Finding("process group", f"{len(answers)} ranks met at {host}:{port}, {first['backend']}")]
    for name, (ranks, size, _) in first["groups"].items():
        slowest = max(answer["groups"][name][2] for answer in answers)
        rate = 2 * (ranks - 1) / ranks * size / slowest / 1e9
        text = f"{size >> 20} MiB over {ranks} ranks in {1e3 * slowest:.1f} ms, bus bandwidth {rate:.2f} GB/s"
        findings.append(Finding(f"all-reduce, {name}", text))
    return findings


def find_ports(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ports at which rank 0 will launch servers."""
    engine = (data.get("init_args") or {}).get("engine") or {}
    options = engine.get("init_args") or {}
    options = {**options, **(options.get("dict_kwargs") or {}), **(engine.get("dict_kwargs") or {})}
    if options.get("port") is None or options.get("urls"):
        return ()
    first = int(options["port"])
    return tuple(range(first, first + int(options.get("servers") or 1)))


def _plan(request: PlanRequest) -> tuple[RunPlan | None, str]:
    """Plan the run; of a run that cannot be planned, return the reason."""
    try:
        return build_plan(request.words, request.given), ""
    except Exception as error:
        if not is_user_error(error):
            raise
        return None, str(error)


def _existing(folder: Path) -> Path:
    """Return the nearest folder that exists: this command leaves none behind."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _take_timeout(arguments: Sequence[str]) -> tuple[float, list[str]]:
    """Take --timeout SECONDS out of the arguments."""
    seconds, rest, words = SECONDS, [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--timeout":
            rest.append(word)
            continue
        text = value if equals else next(words, "")
        if not text.isdigit() or int(text) < 1:
            raise ConfigError(f"--timeout {text}: give a whole number of seconds")
        seconds = float(text)
    return seconds, rest
