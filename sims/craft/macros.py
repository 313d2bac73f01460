"""The crafting world with written programs as further actions: each plans primitive actions, which are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.tools.programs.actions import ActionProgram, plan_together
from sims.craft.sim import CraftSim
from sims.craft.vector import CraftVectorEnv
from sims.craft.world import EMPTY, MOVES, CraftWorld


def discount_rewards(rewards: Sequence[float], gamma: float) -> float:
    """sum_k gamma^k r_k, the reward of a macro-action in a semi-Markov decision process."""
    return sum(gamma**k * reward for k, reward in enumerate(rewards))


def run_macro(world: CraftWorld, actions: Sequence[int], gamma: float) -> tuple[float, int]:
    """Play actions one after the other, until the episode ends; returns the discounted reward and the steps played.

    Without actions one step passes without an effect.

    Args:
        world: is changed.
        actions: numbers of primitive actions.
        gamma: discount factor per step.
    """
    if not actions:
        world.steps, world.gained = world.steps + 1, EMPTY
        return 0.0, 1
    rewards: list[float] = []
    for action in actions:
        if world.done or world.steps >= world.max_steps:
            break
        rewards.append(world.step(action))
    return discount_rewards(rewards, gamma), len(rewards)


class MacroVectorEnv(CraftVectorEnv):
    """Crafting worlds whose actions from P on are macro-actions: action P + k plays what program k plans.

    Observations are mappings: `state`; `action_mask` int8 [P + K], 0 for a macro-action without a program; `elapsed`,
    steps of the episode so far. The reward of a macro-action is discounted within it (`discount_rewards`).
    `infos["executed"]` int [n] are the steps that a decision took, `infos["scores"]["decisions"]` those of the episode.
    What fails in a program takes one step, and is counted in `failures`.

    Args:
        worlds: one an environment.
        subgoals: as `CraftVectorEnv`.
        programs: K of them, None for an empty place.
        macro_steps: most steps of a macro-action.
        gamma: discount factor per step.
    """

    def __init__(
        self,
        worlds: Sequence[CraftWorld],
        subgoals: bool,
        programs: Sequence[ActionProgram | None],
        macro_steps: int,
        gamma: float,
    ):
        super().__init__(worlds, subgoals)
        self.programs, self.macro_steps, self.gamma = list(programs), macro_steps, gamma
        self.primitives = int(self.single_action_space.n)  # type: ignore[attr-defined]
        self.failures: dict[int, list[str]] = {}  # messages by number of the program
        actions = self.primitives + len(self.programs)
        self._mask = np.ones(actions, np.int8)
        self._mask[self.primitives :] = [program is not None for program in self.programs]
        self.single_action_space = spaces.Discrete(actions)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.single_observation_space = spaces.Dict(
            {
                "state": self.single_observation_space,
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
                "elapsed": spaces.Box(0, np.inf, (), np.float32),
            }
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def named_states(self) -> list[dict[str, Any]]:
        """The state of every world by name."""
        return [world.named_state() for world in self.envs]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, infos = super().reset(seed=seed, options=options)
        return self._show(), self._count(infos, np.zeros(self.num_envs, np.int64))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        live = np.flatnonzero(~self.over)
        plans = self._plan({int(i): int(actions[i]) - self.primitives for i in live})
        rewards, executed = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        for i in live:
            plan = plans.get(int(i), [int(actions[i])])
            rewards[i], executed[i] = run_macro(self.envs[i], plan, self.gamma)
            self._observe(i)
        done = np.array([world.done for world in self.envs])
        infos = self._count(self._infos(), executed)
        return self._show(), rewards, done, self.over & ~done, infos

    def _plan(self, numbers: dict[int, int]) -> dict[int, list[int]]:
        """What the programs plan, by environment; `numbers` are those of the programs, negative for primitive ones."""
        plans: dict[int, list[int]] = {}
        used = sorted({each for each in numbers.values() if each >= 0})
        groups = {number: [i for i, each in numbers.items() if each == number] for number in used}
        requests = []
        for number, envs in groups.items():
            program = self.programs[number]
            if program is None:
                plans.update({i: [] for i in envs})
            else:
                requests.append((number, program, [self.envs[i].named_state() for i in envs]))
        results = plan_together([(program, states) for _, program, states in requests])
        for (number, _, _), result in zip(requests, results):
            for i, (plan, problem) in zip(groups[number], result):
                plans[i] = plan[: self.macro_steps]
                if problem is not None:
                    self.failures.setdefault(number, []).append(problem)
        return plans

    def _show(self) -> dict[str, np.ndarray]:
        elapsed = np.array([world.steps for world in self.envs], np.float32)
        return {"state": self._seen.copy(), "action_mask": np.tile(self._mask, (self.num_envs, 1)), "elapsed": elapsed}

    def _count(self, infos: dict[str, Any], executed: np.ndarray) -> dict[str, Any]:
        steps = np.array([world.steps for world in self.envs], np.float64)
        return {**infos, "executed": executed, "scores": {**infos["scores"], "decisions": steps}}


@dataclass(frozen=True)
class CraftMacroSim(CraftSim):
    """`CraftSim` with `slots` macro-actions after the primitive ones: written programs, which a method may exchange.

    Args:
        slots: K, macro-actions; those without a program are not legal (`action_mask`).
        macro_steps: steps after which a macro-action ends at the latest.
        gamma: discount factor per step within a macro-action.
        programs: sources of the programs, at most K, of functions `act(state)` (`ActionProgram`); "" for none.
        unsafe: run programs also where this machine lacks a part of the sandbox.
    """

    slots: int = 8
    macro_steps: int = 20
    gamma: float = 0.99
    programs: Sequence[str] = ()
    unsafe: bool = False

    name = "craft_macros"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, "sim", slots=self.slots, macro_steps=self.macro_steps)
        check_fraction("sim", gamma=self.gamma)
        if len(self.programs) > self.slots:
            raise ValueError(f"sim.programs: {len(self.programs)} programs for sim.slots={self.slots}; raise sim.slots")

    @property
    def action_names(self) -> list[str]:
        """Names of the primitive actions, in their order."""
        return [*MOVES, "collect", *(f"make {name}" for name in self.items[len(self.tree.counts) :])]

    @property
    def makes(self) -> np.ndarray:
        """Pieces that making each item gives, int [I]."""
        return np.array([self.tree.steps[name].makes for name in self.items])

    def with_programs(self, programs: Sequence[str]) -> CraftMacroSim:
        """The same simulator with these programs."""
        return replace(self, programs=tuple(programs))

    def build_program(self, source: str, name: str = "macro.py") -> ActionProgram:
        """The program of a source; raises a ProgramError for one that cannot be used."""
        return ActionProgram(source, self.action_names, name, self.unsafe)

    def make(self, num_envs: int) -> MacroVectorEnv:
        programs = [
            self.build_program(source, f"slot {k}") if source else None for k, source in enumerate(self.programs)
        ]
        programs += [None] * (self.slots - len(programs))
        worlds = [self.make_world() for _ in range(num_envs)]
        return MacroVectorEnv(worlds, self.subgoals, programs, self.macro_steps, self.gamma)

    def sizes(self) -> dict[str, Any]:
        sizes = super().sizes()
        return {**sizes, "actions": sizes["actions"] + self.slots, "slots": self.slots}

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "slots": self.slots, "macro_steps": self.macro_steps}

    def _demonstrate(self, seed: int) -> list[tuple[Mapping[str, Any], Any]]:
        env, decisions = self.make(1), []
        observation, _ = env.reset(seed=[seed])
        while not env.over[0]:
            actions = self.expert(env)
            decisions.append(({name: rows[0] for name, rows in observation.items()}, actions[0]))
            observation, *_ = env.step(actions)
        return decisions
