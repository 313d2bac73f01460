"""EnvGen's rollouts: cycles of written worlds and the original one, in the end the original one alone.

EnvGen, 2024, arXiv:2403.12014, section 2.

- which worlds an iteration trains in: `plan_iteration`
- environments that begin episodes in written worlds: `WrittenVectorEnv`, `WrittenSim`
- training: `EnvGen`
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context, Episode, Prompt, Sim
from mmrl.methods.levels.envgen.score import SKILL, SkillSuccess
from mmrl.methods.levels.envgen.writers import SkillFeedback, WorldWriter, read_configurations
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.exchange import exchange_sim

WRITTEN = "written"
"""Score of an episode: 1 where it began in a written world."""


@runtime_checkable
class ConfigurableSim(Protocol):
    """A simulator of recipes whose environments take `reset(options={"configurations": [...]})`.

    Its episodes have the scores `skill/ITEM`.
    """

    items: Sequence[str]
    needs: tuple[np.ndarray, np.ndarray]
    target: str
    settings: Sequence[str]  # what a configuration may say

    def check_configuration(self, configuration: Any) -> None:
        """Raise a ValueError with the key that is wrong."""


def plan_iteration(iteration: int, cycles: int, written: int, original: int) -> tuple[int | None, bool]:
    """The cycle of an iteration, None after the last one, and whether it trains in written worlds.

    Args:
        iteration: from 0.
        cycles: N.
        written: iterations of a cycle in written worlds, the first ones.
        original: iterations of a cycle in the original world, the others.
    """
    cycle, place = divmod(iteration, written + original)
    return (cycle, place < written) if cycle < cycles else (None, False)


@dataclass
class Worlds:
    """The written worlds, and whether episodes begin in them now; {} is the original one."""

    configurations: list[dict[str, Any]] = field(default_factory=list)
    active: bool = False


class WrittenVectorEnv(VectorWrapper):
    """Environments whose episodes begin in the written worlds in turn, while these are active.

    Episode number k of environment i begins in world k + i, modulo their number. Scores have `written`.

    Args:
        env: of a `ConfigurableSim`, whose finished environments are reset by the caller.
        worlds: are read at each reset.
    """

    def __init__(self, env: VectorEnv, worlds: Worlds):
        super().__init__(env)
        self.worlds = worlds
        self._begun = np.zeros(env.num_envs, np.int64)  # episodes in written worlds
        self._written = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        worlds = self.worlds.configurations if self.worlds.active else []
        configurations: list[Mapping[str, Any]] = [{}] * self.num_envs
        for i in np.flatnonzero(mask):
            if worlds:
                configurations[i] = worlds[(self._begun[i] + i) % len(worlds)]
                self._begun[i] += 1
            self._written[i] = bool(worlds)
        options = {**(options or {}), "reset_mask": mask, "configurations": configurations}
        observation, infos = self.env.reset(seed=seed, options=options)
        return observation, self._tell(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *results, infos = self.env.step(actions)
        return *results, self._tell(infos)  # type: ignore[return-value]

    def _tell(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {**infos, "scores": {**infos["scores"], WRITTEN: self._written.astype(np.float64)}}

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and of the worlds that their episodes began in."""
        arrays = {"begun": torch.from_numpy(self._begun.copy()), "written": torch.from_numpy(self._written.copy())}
        return {"env": self.env.state_dict(), **arrays}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._begun, self._written = state["begun"].numpy().copy(), state["written"].numpy().copy()


@dataclass(frozen=True)
class WrittenSim(Sim):
    """The same simulator, whose episodes begin in written worlds while these are active.

    Args:
        sim: a `ConfigurableSim`.
        worlds: the written worlds.
    """

    sim: Sim
    worlds: Worlds

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return WrittenVectorEnv(self.sim.make(num_envs), self.worlds)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


class EnvGen(FixedHorizon):
    """EnvGen: as `FixedHorizon`, in cycles of worlds that a writer configures and of the original world.

    At the start of a cycle the writer reads the success of each skill in the episodes that the cycle before began in
    the original world, with standard errors, and writes the worlds. What is no configuration is refused by its key; the
    writer reads why and is asked again. A world that stays refused is the original one. One process only.
    Source: EnvGen, 2024, arXiv:2403.12014, section 2.

    Args:
        writer: configures the worlds.
        cycles: N; 0 for the original world alone.
        written_iterations: of a cycle in the written worlds, the first ones.
        original_iterations: of a cycle in the original world.
        worlds: that the writer configures in a cycle.
        attempts: answers of the writer in a cycle before refused worlds are replaced by the original one.
        adapt: whether later cycles have new worlds; else those of the first cycle stay.
        options: further arguments of `FixedHorizon`.
    """

    def __init__(
        self,
        writer: WorldWriter,
        cycles: int = 4,
        written_iterations: int = 3,
        original_iterations: int = 3,
        worlds: int = 4,
        attempts: int = 2,
        adapt: bool = True,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(0, "rollout", cycles=cycles)
        lengths = {"written_iterations": written_iterations, "original_iterations": original_iterations}
        check_at_least(1, "rollout", worlds=worlds, attempts=attempts, **lengths)
        self.writer, self.cycles, self.adapt = writer, cycles, adapt
        self.written_iterations, self.original_iterations = written_iterations, original_iterations
        self.count, self.attempts = worlds, attempts
        self.worlds = Worlds()
        self._success: dict[str, SkillSuccess] = {}  # in the original world, since the last writing
        self._cycle = -1  # that the worlds were written for
        self._answers = self._refused = 0

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.world_size > 1:
            raise ConfigError("rollout=envgen keeps its worlds in one process; set trainer.devices=1")
        sim = find_configurable_sim(ctx)
        cycle, written = plan_iteration(ctx.iteration, self.cycles, self.written_iterations, self.original_iterations)
        if cycle is not None and cycle > self._cycle:
            if self.adapt or self._cycle < 0:
                self.worlds.configurations = self._write(sim)
                self._success = {}
            self._cycle = cycle
        self.worlds.active = written
        return super().collect(prompts, exchange_sim(ctx, WrittenSim(sim, self.worlds)))

    def _write(self, sim: Any) -> list[dict[str, Any]]:
        """Worlds of a cycle: of the last answer, filled up with the original one."""
        feedback = SkillFeedback(
            list(sim.items), sim.needs, sim.target, sim.settings, self.count, self._success,
            [world for world in self.worlds.configurations if world],
        )  # fmt: skip
        usable: list[dict[str, Any]] = []
        for _ in range(self.attempts):
            answer = self.writer.write_worlds(replace(feedback, number=self._answers))
            self._answers += 1
            usable, refused = read_configurations(answer, self.count, sim.check_configuration)
            self._refused += len(refused)
            feedback = replace(feedback, refused=refused)
            if not refused:
                break
        return [*usable, *({} for _ in range(self.count - len(usable)))]

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Count the success of each skill in the finished episodes that began in the original world."""
        super().observe(groups)
        for episode in (each for group in groups for each in group):
            if episode.ended in ("done", "time") and not episode.scores.get(WRITTEN, 1.0):
                for name in (name for name in episode.scores if name.startswith(SKILL)):
                    skill = self._success.setdefault(name.removeprefix(SKILL), SkillSuccess())
                    skill.episodes += 1
                    skill.successes += int(episode.scores[name] > 0)

    def metrics(self) -> dict[str, float]:
        """As `FixedHorizon`; whether written worlds are active, answers of the writer, and configurations refused."""
        counts = {"answers": self._answers, "refused": self._refused, "active": self.worlds.active}
        return {**super().metrics(), **{f"worlds/{name}": float(number) for name, number in counts.items()}}

    def state_dict(self) -> dict[str, Any]:
        success = {name: [each.episodes, each.successes] for name, each in self._success.items()}
        counts = [self._cycle, self._answers, self._refused]
        written = {"configurations": self.worlds.configurations, "success": success, "counts": counts}
        return {**super().state_dict(), "envgen": copy.deepcopy(written)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        written = state["envgen"]
        self.worlds.configurations = copy.deepcopy(written["configurations"])
        self._success = {name: SkillSuccess(*numbers) for name, numbers in written["success"].items()}
        self._cycle, self._answers, self._refused = written["counts"]


def find_configurable_sim(ctx: Context) -> Any:
    """The simulator of a context's task, whose worlds can be configured.

    Raises:
        ConfigError: they cannot.
    """
    sim = simulator_of(ctx.task, "rollout=envgen")
    if not isinstance(sim, ConfigurableSim):
        raise ConfigError(
            f"rollout=envgen begins episodes in configured worlds, and sim {sim.name!r} has none: take "
            "sim=craft_worlds, and sim.workers=0"
        )
    return sim
