"""`mmrl data record`: episodes of a simulator's scripted expert or of a trained policy."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hydra.utils import instantiate
from omegaconf import OmegaConf
from rich.console import Console

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import CLI, load_run
from mmrl.commands.evaluation.arguments import parse
from mmrl.commands.options import RECORD_OPTIONS, parse_count, parse_number, parse_switch, split_options
from mmrl.config.code.packages import check_packages
from mmrl.config.compose import compose
from mmrl.config.preflight import check_folder
from mmrl.config.renamed import find_new_name
from mmrl.config.signatures import choose_state_task, spread_sim
from mmrl.core.errors import ConfigError
from mmrl.core.types import Sampling
from mmrl.datasets.lerobot.writer import LeRobotWriter
from mmrl.datasets.recording import Actor, ExpertActor, PolicyActor, check_stepwise
from mmrl.datasets.recording import record as record_episodes
from mmrl.datasets.video_file import need_av
from mmrl.runs.writable import writable

_READ = ("folder", "checkpoint", "trust", "arguments")
"""What is read of the request for an evaluation."""
DECODES = get_args(get_type_hints(Sampling)["decode"])


@dataclass(frozen=True)
class EpisodeSource:
    """The task, the actor, and a description of the actor."""

    task: Any
    actor: Callable[[Sequence[int]], Actor]
    description: str


def record(arguments: Sequence[str]) -> None:
    """Write episodes as a LeRobotDataset v3.0, failures among them, flagged."""
    options, more = split_options(arguments, RECORD_OPTIONS)
    for argument in more:
        if new := find_new_name("commands", "record", argument.partition("=")[0]):
            raise ConfigError(f"{argument.partition('=')[0]} was renamed to {new}")
        near = difflib.get_close_matches(argument.partition("=")[0], RECORD_OPTIONS, n=1)
        if "=" in argument and "." not in argument.partition("=")[0] and near:
            raise ConfigError(f"{argument}: unknown option. Did you mean {near[0]!r}?")
    if not options.get("out", "").strip():
        raise ConfigError("out=FOLDER is missing: name the folder where the dataset goes")
    if options.get("format", "lerobot") != "lerobot":
        raise ConfigError(f"format={options['format']}: datasets are written as format=lerobot")
    split, offset = options.get("split", "train"), parse_count(options, "offset", 0, 0)
    if split not in ("train", "held_out"):
        raise ConfigError(f"split={split}: must be train or held_out")
    num_episodes, video = parse_count(options, "num_episodes", 50, 1), parse_switch(options, "video", True)
    noise = parse_number(options, "noise", 0.0, 0)
    check_folder("out", options["out"])
    source = _policy(options, more) if "run" in options else _expert(options, more, noise)
    task = source.task.on(split)
    if offset >= len(task):
        raise ConfigError(f"offset={offset}: {split} has {len(task)} initial states; must be at most {len(task) - 1}")
    count = min(num_episodes, len(task) - offset)
    seeds = [task[i].info["seed"] for i in range(offset, offset + count)]
    if video and getattr(task.sim, "image_size", 0):
        need_av()  # fail before episodes are recorded
    sim = task.sim.stepwise()
    fps = _fps(sim)
    with writable(options["out"], "out"):
        writer = LeRobotWriter(options["out"], fps, video, task.contract(), task.sim.name)
        console, errors = Console(soft_wrap=True, markup=False, emoji=False), 0
        for outcome in record_episodes(sim, seeds, source.actor):
            for episode in outcome.episodes:
                writer.add(episode)
            errors += outcome.errors
            console.print(f"{len(writer.episodes) + errors} of {count} episodes", highlight=False)
        if not writer.episodes:
            raise ValueError(f"none of the {count} episodes could be recorded: the simulator failed in all of them")
        writer.close()
    _report(console, writer, errors, source.description, Path(options["out"]))


def _expert(options: dict[str, str], more: Sequence[str], noise: float) -> EpisodeSource:
    if options.get("policy", "expert") != "expert":
        raise ConfigError(f"policy={options['policy']}: policy=expert, or run=RUN_FOLDER for a trained one")
    for name in ("checkpoint", "decode"):
        if name in options:
            raise ConfigError(f"{name}={options[name]} belongs to a policy: give run=RUN_FOLDER too")
    if not any(argument.startswith("sim=") for argument in more):
        raise ConfigError("name what is recorded: sim=NAME (see `mmrl list sims`), or run=RUN_FOLDER")
    for argument in more:
        key, equals, _ = argument.lstrip("+~").partition("=")
        if equals and key.split(".")[0] not in ("sim", "task"):
            raise ConfigError(f"{argument}: an expert is recorded with its sim, sim.* and task.* alone; leave it out")
    node = OmegaConf.select(compose(["task=sim", *more]), "data.task")
    check_packages({"task": OmegaConf.to_container(node)})
    data: Any = {"task": OmegaConf.to_container(node, resolve=True, throw_on_missing=True)}
    choose_state_task(data)
    spread_sim(data)
    task = instantiate(data["task"], _convert_="object")
    if not hasattr(task.sim, "expert"):
        raise ConfigError(f"sim {task.sim.name!r} has no scripted expert; record a trained policy with run=RUN_FOLDER")
    sim = task.sim.stepwise()
    return EpisodeSource(
        task, lambda seeds: ExpertActor(sim, seeds, noise), f"the expert of {task.sim.name}, noise {noise:g}"
    )


def _policy(options: dict[str, str], more: Sequence[str]) -> EpisodeSource:
    for name in ("policy", "noise"):
        if name in options:
            raise ConfigError(f"{name}={options[name]} is an option of the expert; leave it out beside run=...")
    if options.get("decode", DECODES[0]) not in DECODES:
        raise ConfigError(f"decode={options['decode']}: must be one of {', '.join(DECODES)}")
    checkpoint = [f"checkpoint={options['checkpoint']}"] if "checkpoint" in options else []
    request = parse([options["run"], *checkpoint, *more])
    for each in fields(request):
        if each.name not in _READ and each.default is not MISSING and getattr(request, each.name) != each.default:
            raise ConfigError(f"{each.name}=... is an option of `mmrl evaluate`; leave it out")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    check = partial(_check_sim, folder=request.folder)
    cli: CLI = load_run(request.folder / "config.yaml", request.arguments, trust=request.trust, check=check)
    data: Any = cli.datamodule
    try:
        load_policy(cli.model.policy, str(request.checkpoint), trust=request.trust)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{request.checkpoint}: {error}") from error
    data.engine.sync(cli.model.policy, 0)
    sampling = data.sampling
    if "decode" in options:
        sampling = replace(sampling, decode=options["decode"])
    return EpisodeSource(
        data.task,
        lambda seeds: PolicyActor(data.engine, sampling, seeds),
        f"{request.checkpoint}, decode {sampling.decode}",
    )


def _check_sim(data: Any, reward: Any, folder: Path) -> None:
    """Refuse a run without a simulator that can be recorded, before its policy is built."""
    if getattr(data.task, "sim", None) is None:
        raise ConfigError(f"{folder}: task {data.task.name!r} has no simulator to record in")
    _fps(data.task.sim.stepwise())


def _fps(sim: Any) -> float:
    """Control steps per second, as the environment states them for rendering."""
    env = sim.make(1)
    stated = env.metadata.get("render_fps")
    check_stepwise(env)
    env.close()
    if not stated:
        raise ConfigError(f"sim {sim.name!r} does not say metadata['render_fps'], its control steps per second")
    return float(stated)


def _report(console: Console, writer: LeRobotWriter, errors: int, description: str, out: Path) -> None:
    flagged = [entry["success"] for entry in writer.episodes]
    lines = [f"written: {out} ({len(flagged)} episodes, {writer.frames} control steps at {writer.fps:g} per second)"]
    lines.append(f"played by: {description}")
    if any(flag is not None for flag in flagged):
        failed = flagged.count(False)
        note = "; the failed ones are kept, flagged, and left out of imitation" if failed else ""
        lines.append(f"success: {flagged.count(True)}, failed: {failed}{note}")
    if errors:
        lines.append(f"not written: {errors} episodes in which the simulation broke down")
    for line in lines:
        console.print(line, highlight=False)
