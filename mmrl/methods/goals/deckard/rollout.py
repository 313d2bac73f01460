"""DECKARD's rollouts: episodes in which the next subgoal of the graph is shown, and the graph learns what was had.

- goals and subgoals beside the environments: `GuidedVectorEnv`
- a simulator with them: `GuidedSim`
- training, which also corrects the graph: `DECKARD`
- evaluation, with the target as the goal: `GuidedEpisodic`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Sim
from mmrl.methods.goals.deckard.graph import RecipeGraph
from mmrl.methods.goals.deckard.guides import Guide, Needs
from mmrl.methods.goals.deckard.policy import RecipeGraphPolicy
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.exchange import exchange_sim


@runtime_checkable
class CraftingSim(Protocol):
    """A simulator of recipes, whose observations end with room for a subgoal.

    Its `infos` have `held` int [n, I], and of the last decision `gained` int [n], the item that it gave or -1, with
    what this took: `ingredients` int [n, I] and `tools` bool [n, I].
    """

    items: Sequence[str]
    needs: Needs  # the real recipes
    target: str
    subgoals: bool  # whether there is room for a subgoal


@dataclass(frozen=True)
class Pursuit:
    """How goals are pursued.

    Args:
        learns: draw goals, pay for subgoals and change the graph; else the target is the goal and nothing is paid.
        directed: goals on the way to the target alone; else any.
        bonus: paid for a piece that the goal took.
        subgoal_steps: decisions on one subgoal after which the goal is given up.
        goal_steps: decisions on one goal after which it is given up.
        seed: of the goals.
    """

    learns: bool = False
    directed: bool = True
    bonus: float = 0.0
    subgoal_steps: int = 1
    goal_steps: int = 1
    seed: int = 0


class GuidedVectorEnv(VectorWrapper):
    """Environments that show the next subgoal of their goal one-hot, at the end of the observation.

    An episode begins with a goal of the graph; the next one follows when it is achieved or given up. The subgoal is
    what the graph says that the goal lacks first (`RecipeGraph.find_subgoal`). Whatever a decision gives is verified
    with what it took. Beside the simulator's reward it is paid bonus (n - n'), with n pieces to be had until the goal
    before it and n' after it (`RecipeGraph.count_remaining`): to waste pieces and have them again pays nothing.

    Args:
        env: of a `CraftingSim`, whose finished environments are reset by the caller.
        graph: is changed in place.
        target: number of the item that ends episodes.
        pursuit: how goals are pursued.
    """

    def __init__(self, env: VectorEnv, graph: RecipeGraph, target: int, pursuit: Pursuit):
        super().__init__(env)
        self.graph, self.target, self.pursuit = graph, target, pursuit
        count = env.num_envs
        self._goals, self._subgoals = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._waited, self._pursued = np.zeros(count, np.int64), np.zeros(count, np.int64)  # decisions so far
        self._over = np.zeros(count, bool)
        self._held = np.zeros((count, len(graph.verified)), np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(seed=seed, options=options)
        starts = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        for i in np.flatnonzero(starts):
            self._over[i] = False
            self._held[i] = infos["held"][i]
            self._begin(i)
        return self._show(observation), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        live = np.flatnonzero(~self._over)
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = np.array(rewards, np.float64)
        for i in live:
            rewards[i] += self._follow(i, int(infos["gained"][i]), infos)
        self._over = terminated | truncated
        return self._show(observation), rewards, terminated, truncated, infos

    def _follow(self, i: int, gained: int, infos: dict[str, Any]) -> float:
        """Learn from the decision of environment i and choose its subgoal; returns the bonus."""
        graph, pursuit, goal, before = self.graph, self.pursuit, int(self._goals[i]), self._held[i].copy()
        self._held[i] = infos["held"][i]
        self._pursued[i] += 1
        self._waited[i] += 1
        bonus = 0.0
        if pursuit.learns:
            graph.counts[1] += 1
            if gained >= 0:
                graph.verify(gained, infos["ingredients"][i], infos["tools"][i])
                remaining = 0 if gained == goal else graph.count_remaining(goal, self._held[i])
                bonus = pursuit.bonus * (graph.count_remaining(goal, before) - remaining)
            if gained == self._subgoals[i]:
                self._waited[i] = 0
            given_up = self._waited[i] >= pursuit.subgoal_steps or self._pursued[i] >= pursuit.goal_steps
            if gained == goal or given_up:
                graph.note(goal, gained == goal)
                self._begin(i)
        subgoal = graph.find_subgoal(int(self._goals[i]), self._held[i])  # the graph may have changed elsewhere
        if subgoal != self._subgoals[i]:
            self._subgoals[i], self._waited[i] = subgoal, 0
        return bonus

    def _begin(self, i: int) -> None:
        """Give environment i its next goal."""
        goal, pursuit = self.target, self.pursuit
        if pursuit.learns:
            rng = derive_rng("deckard goals", pursuit.seed, int(self.graph.counts[0]))
            goal = self.graph.draw_goal(rng, self.target if pursuit.directed else None)
        self._goals[i], self._subgoals[i] = goal, self.graph.find_subgoal(goal, self._held[i])
        self._waited[i] = self._pursued[i] = 0

    def _show(self, observation: np.ndarray) -> np.ndarray:
        room = np.eye(len(self.graph.verified), dtype=observation.dtype)[self._subgoals]
        return np.concatenate([observation[:, : -room.shape[1]], room], axis=1)

    _STATE = ("_goals", "_subgoals", "_waited", "_pursued", "_over", "_held")

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and their goals; the graph is the policy's."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in self._STATE}
        return {"env": self.env.state_dict(), **arrays}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        for name in self._STATE:
            setattr(self, name, state[name].numpy().copy())


@dataclass(frozen=True)
class GuidedSim(Sim):
    """The same simulator with goals of a graph.

    Args:
        sim: a `CraftingSim`.
        graph: of its items.
        pursuit: how goals are pursued.
    """

    sim: Sim
    graph: RecipeGraph
    pursuit: Pursuit

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        sim: Any = self.sim
        target = list(sim.items).index(sim.target)
        return GuidedVectorEnv(sim.make(num_envs), self.graph, target, self.pursuit)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


def guide_episodes(ctx: Context, graph: RecipeGraph, pursuit: Pursuit) -> Context:
    """The context with a simulator that has goals of a graph."""
    return exchange_sim(ctx, GuidedSim(find_crafting_sim(ctx), graph, pursuit))


def find_crafting_sim(ctx: Context) -> Any:
    """The simulator of a context's task and a policy that has a graph of its items.

    Raises:
        ConfigError: the simulator has no recipes or no room for a subgoal, or the policy no graph.
    """
    sim = simulator_of(ctx.task, "rollout=deckard")
    if not isinstance(sim, CraftingSim) or not sim.subgoals:
        raise ConfigError(
            f"rollout=deckard shows subgoals of recipes, and sim {sim.name!r} has no recipes or no room for them: take "
            "sim=craft sim.subgoals=true"
        )
    if not isinstance(ctx.policy, RecipeGraphPolicy) or ctx.policy.config["items"] != len(sim.items):
        raise ConfigError(
            f"rollout=deckard needs a policy with a graph of the {len(sim.items)} items of sim {sim.name!r}: take "
            "policy=recipe_graph"
        )
    return sim


class DECKARD(FixedHorizon):
    """DECKARD: as `FixedHorizon`, with goals at the edge of a graph of recipes, which experience corrects.

    A guide guesses the recipes before the first decision. Goals are drawn among guessed items all of whose needs are
    verified and verified ones, those that never were a goal first; once the target was had, it is the only goal. The
    graph is the policy's. One process only.
    Source: DECKARD, 2023, arXiv:2301.12050, sections 4.1 to 4.3.

    Args:
        guide: guesses the recipes.
        directed: goals on the way to the target alone, as far as the graph knows it.
        bonus: reward of a piece that the goal took.
        subgoal_steps: decisions on one subgoal after which the goal is given up.
        goal_steps: decisions on one goal after which it is given up.
        options: further arguments of `FixedHorizon`.
    """

    def __init__(
        self,
        guide: Guide,
        directed: bool = True,
        bonus: float = 1.0,
        subgoal_steps: int = 40,
        goal_steps: int = 200,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(0, "rollout", bonus=bonus)
        check_at_least(1, "rollout", subgoal_steps=subgoal_steps, goal_steps=goal_steps)
        self.guide = guide
        self.pursuit = Pursuit(True, directed, bonus, subgoal_steps, goal_steps)
        self._graph: RecipeGraph | None = None  # the policy's, once it was read
        self._counts: dict[str, float] = {}

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.world_size > 1:
            raise ConfigError("rollout=deckard keeps its graph in one process; set trainer.devices=1")
        sim = find_crafting_sim(ctx)
        policy: Any = ctx.policy
        if self._graph is None:
            self._graph = policy.read_graph()
            if not self._graph.guessed.any():
                self.guide.fill(self._graph, list(sim.items), sim.needs)
        guided = guide_episodes(ctx, self._graph, replace(self.pursuit, seed=ctx.seed))
        episodes = super().collect(prompts, guided)
        policy.write_graph(self._graph)
        self._counts = count_recipes(self._graph, sim.needs, list(sim.items).index(sim.target))
        return episodes

    def metrics(self) -> dict[str, float]:
        """As `FixedHorizon`; and what the graph knows (`count_recipes`)."""
        return {**super().metrics(), **self._counts}


def count_recipes(graph: RecipeGraph, needs: Needs, target: int) -> dict[str, float]:
    """Verified items, wrong recipes that are believed, success of the target as a goal, and decisions before it.

    `graph/target_steps` are the decisions before the target was had first, or all so far.
    """
    differs = (graph.ingredients != needs[0]) | (graph.tools != needs[1])
    first = int(graph.first_step[target])
    return {
        "graph/verified": float(graph.verified.sum()),
        "graph/wrong": float(differs.any(axis=1).sum()),
        "graph/target_success": float(graph.success[target]),
        "graph/target_steps": float(first if first >= 0 else graph.counts[1]),
    }


class GuidedEpisodic(EpisodicRollout):
    """As `EpisodicRollout`, with the subgoals of the policy's graph on the way to the target; nothing is learned."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        find_crafting_sim(ctx)
        policy: Any = ctx.policy
        return super().collect(prompts, guide_episodes(ctx, policy.read_graph(), Pursuit()))
