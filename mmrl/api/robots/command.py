"""`mmrl robot`: a policy on a robot in real time, with takeovers, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.api.loaded_policy import LoadedPolicy, load_policy
from mmrl.api.robots.clock import Clock, SimulatedClock, SystemClock
from mmrl.api.robots.inference import ChunkPolicy, start_inference
from mmrl.api.robots.player import PlayedEpisode, RealTimePlayer, Takeover
from mmrl.api.robots.policies import connect_server, load_local
from mmrl.api.robots.robot import Robot
from mmrl.api.robots.simulated import SimulatedRobot
from mmrl.api.robots.takeover import ScriptedTakeover
from mmrl.api.robots.timing import join_reports
from mmrl.commands.options import ROBOT_OPTIONS, parse_count, parse_number, parse_switch, split_options
from mmrl.config.preflight import check_folder
from mmrl.core.errors import ConfigError, check_positive
from mmrl.core.function_path import load_functions, resolve_path
from mmrl.core.types import Task
from mmrl.datasets.lerobot.writer import LeRobotWriter
from mmrl.datasets.video_file import need_av
from mmrl.rollouts.env.takeover import TakeoverRule
from mmrl.runs.writable import writable


@dataclass(frozen=True)
class RobotRequest:
    """What the command line asks for; `mmrl robot --help` describes the options.

    Args:
        run: folder; None with a server's address alone.
        options: by name, as they were given.
    """

    run: str | None
    options: dict[str, str]

    @property
    def fps(self) -> float | None:
        return parse_number(self.options, "fps", 0, 0) if "fps" in self.options else None

    def switch(self, name: str, default: bool = False) -> bool:
        return parse_switch(self.options, name, default)

    def count(self, name: str, default: int, least: int) -> int:
        return parse_count(self.options, name, default, least)


def parse(arguments: Sequence[str]) -> RobotRequest:
    """Parse what follows `mmrl robot`: a run folder, then key=value.

    Raises:
        ConfigError: an option is unknown, out of range, or does not fit the others.
    """
    options, places = split_options(arguments, ROBOT_OPTIONS)
    if len(places) > 1 or any("=" in place or place.startswith("-") for place in places):
        raise ConfigError(f"give one run folder, got {places}; options are {', '.join(f'{n}=' for n in ROBOT_OPTIONS)}")
    request = RobotRequest(places[0] if places else None, options)
    if request.run is None and not {"url", "robot"} <= set(options):
        raise ConfigError("give a run folder, or both url=ws://HOST:PORT of a server and robot=FILE.py:CLASS")
    if options.get("clock", "system") not in ("system", "simulated"):
        raise ConfigError(f"clock={options['clock']}: must be system or simulated")
    if options.get("split", "held_out") not in ("train", "held_out"):
        raise ConfigError(f"split={options['split']}: must be train or held_out")
    if options.get("takeover") == "expert" and "robot" in options:
        raise ConfigError(
            "takeover=expert is the script of a simulator; give takeover=FILE.py:FUNCTION for the device of your robot"
        )
    if request.switch("guide") and "url" in options:
        raise ConfigError("guide=true guides a policy in this process, not one at a server; take blend=N, or a run")
    if request.fps is not None:
        check_positive("robot", fps=request.fps)
    if "out" in options:
        check_folder("out", options["out"])
    for name, default, least in (("num_episodes", 1, 1), ("max_steps", 1000, 1), ("blend", 0, 0), ("execute", 1, 1)):
        request.count(name, default, least)
    return request


def play_robot(arguments: Sequence[str]) -> None:
    """Play episodes, print what happened in their control steps, and write them if asked to."""
    request = parse(arguments)
    options = request.options
    loaded = None if request.run is None else _load(request, request.run)
    clock = SimulatedClock() if options.get("clock") == "simulated" else SystemClock()
    task = None if "robot" in options else _find_task(request, loaded)
    robot = _build_robot(request, clock, task)
    try:
        policy = _build_policy(request, loaded, robot)
        takeover = _build_takeover(request, robot)
        writer = _open_writer(request, robot, task)
        inference = start_inference(policy, clock, parse_number(options, "latency_ms", 0, 0) / 1000)
        player = RealTimePlayer(
            robot,
            inference,
            clock,
            request.fps,
            request.count("execute", 1, 1) if "execute" in options else None,
            request.count("blend", 0, 0),
            takeover,
            request.count("max_steps", 1000, 1),
        )
        try:
            _play_episodes(request, player, task, writer)
        finally:
            inference.close()
    finally:
        robot.close()


def _play_episodes(
    request: RobotRequest, player: RealTimePlayer, task: Task | None, writer: LeRobotWriter | None
) -> None:
    """Play the episodes; one that Ctrl-C ended is the last."""
    played: list[PlayedEpisode] = []
    for seed in _list_seeds(request, task):
        played.append(player.play(seed))
        episode = played[-1].episode
        outcome = {None: "", True: ", success", False: ", no success"}[episode.success]
        print(f"episode {len(played)}: {len(episode)} control steps{outcome}", flush=True)
        if writer is not None:
            with writable(writer.folder, "out"):
                writer.add(episode)
        if played[-1].interrupted:
            break
    print("\n".join(join_reports([each.timing for each in played]).format()))
    if writer is not None:
        with writable(writer.folder, "out"):
            writer.close()
        print(f"written: {writer.folder} ({len(writer.episodes)} episodes, {writer.frames} control steps)")


def _load(request: RobotRequest, run: str) -> LoadedPolicy:
    options = request.options
    return load_policy(
        run,
        options.get("checkpoint", "last"),
        options.get("decode"),
        request.count("seed", 0, 0),
        options.get("device", "cpu"),
        trust=request.switch("trust"),
    )


def _find_task(request: RobotRequest, loaded: LoadedPolicy | None) -> Task:
    """The task of the run, which has the simulator and its initial states."""
    assert loaded is not None
    if getattr(loaded.task, "sim", None) is None:
        raise ConfigError(f"{request.run}: this run has no simulator; give robot=FILE.py:CLASS")
    return loaded.task.on(request.options.get("split", "held_out"))  # type: ignore[arg-type]


def _list_seeds(request: RobotRequest, task: Task | None) -> list[int]:
    """Seeds of the episodes: those of the initial states, or numbers from `seed` on."""
    count, offset = request.count("num_episodes", 1, 1), request.count("offset", 0, 0)
    if task is None:
        return list(range(request.count("seed", 0, 0), request.count("seed", 0, 0) + count))
    if offset + count > len(task):
        raise ConfigError(f"offset={offset} num_episodes={count}: there are {len(task)} initial states")
    return [task[i].info["seed"] for i in range(offset, offset + count)]


def _build_robot(request: RobotRequest, clock: Clock, task: Any) -> Robot:
    if task is not None:
        return SimulatedRobot(task.sim, clock, request.fps)
    path = request.options["robot"]
    try:
        read: Any = load_functions([f"{resolve_path(path, Path.cwd(), 'robot')}.read"], "robot")[0]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    robot = getattr(read, "__self__", None)
    if not isinstance(robot, Robot):
        raise ConfigError(f"robot={path}: must be a subclass of mmrl.api.robots.robot.Robot")
    if absent := [name for name in ("fps", "action_dims") if not getattr(robot, name, None)]:
        raise ConfigError(f"robot={path}: the class states no {absent[0]}")
    return robot


def _build_policy(request: RobotRequest, loaded: LoadedPolicy | None, robot: Robot) -> ChunkPolicy:
    options = request.options
    if "url" in options:
        return connect_server(options["url"], options.get("token_file"), robot.action_dims, options.get("decode"))
    assert loaded is not None
    return load_local(loaded, request.switch("guide"), parse_number(options, "limit", 5, 0))


def _build_takeover(request: RobotRequest, robot: Robot) -> Takeover | None:
    path = request.options.get("takeover")
    if path is None:
        return None
    if path == "expert":
        assert isinstance(robot, SimulatedRobot)
        return ScriptedTakeover(robot, TakeoverRule(request.count("patience", 10, 1), request.count("duration", 5, 1)))
    try:
        return load_functions([resolve_path(path, Path.cwd(), "takeover")], "takeover")[0]
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _open_writer(request: RobotRequest, robot: Robot, task: Any) -> LeRobotWriter | None:
    if "out" not in request.options:
        return None
    video, fps = request.switch("video", True), request.fps or robot.fps
    if video:
        need_av()  # fail before episodes are played
    contract = {} if task is None else task.contract()
    name = type(robot).__name__ if task is None else task.sim.name
    with writable(request.options["out"], "out"):
        return LeRobotWriter(request.options["out"], fps, video, contract, name)
