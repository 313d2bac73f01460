"""Worlds that live on from one iteration to the next, cut into segments of a fixed number of decisions."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmrl.rng import derived_seed
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.continued import ContinuedEnv, Transition
from mmrl.rollouts.segments import Harvest, World
from mmrl.types import Context, Episode, Prompt, Request, Sim

log = logging.getLogger(__name__)


class EnvSegments(Rollout):
    """Takes `num_envs * horizon` decisions per iteration in worlds that are never interrupted by it.

    A segment is a piece of a world's life: up to its end ("done", "time", "error") or the end of the iteration
    ("cut"). Each is one Episode in a group of its own. What follows a segment that did not terminate is worth the
    policy's value of the final observation. An error costs the failed decision, whose outcome is unknown.

    In autoreset mode next_step some worlds spend steps on resetting, so that the last step of an iteration can yield
    more decisions than are wanted; those are taken in the worlds but not learnt from.

    Prompts count only at the very start: their seeds are the worlds' first ones. Other purposes than "train" are
    left to `evaluation`.

    Args:
        sim: the simulator.
        num_envs: worlds per process.
        horizon: decisions per world and iteration, on average.
        evaluation: plays whole episodes, one per prompt and attempt.
        max_errors: failures of the simulator in one iteration beyond which the run stops.
        window: how many of the last finished lives the reported mean return is over.
    """

    def __init__(
        self,
        sim: Sim,
        num_envs: int = 8,
        horizon: int = 32,
        evaluation: Rollout | None = None,
        max_errors: int = 10,
        window: int = 100,
    ):
        for name, value in (("num_envs", num_envs), ("horizon", horizon), ("window", window)):
            if value < 1:
                raise ValueError(f"rollout.{name} must be at least 1, got {value}")
        self.sim, self.num_envs, self.horizon = sim, num_envs, horizon
        self.evaluation, self.max_errors, self.window = evaluation, max_errors, window
        self._env: ContinuedEnv | None = None
        self._checked: Any = None  # the policy that was last compared with the simulator
        self._worlds: list[World] = []
        self._returns: deque[float] = deque(maxlen=window)
        self._lives = self._env_steps = self._errors = 0
        self._last_error = ""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        """Segments with `num_envs * horizon` turns together; prompts and attempts play no part after the start."""
        if ctx.purpose != "train":
            return self._evaluate(prompts, ctx)
        env = self._open(prompts, ctx)
        for world in self._worlds:
            world.turns, world.draws = [], 0
        wanted, harvest, errors = self.num_envs * self.horizon, Harvest(self.sim.name), self._errors
        while harvest.rows < wanted:
            acting = np.flatnonzero(env.acting).tolist()
            completions = ctx.engine.sample([self._request(w, ctx) for w in acting], ctx.sampling)
            transitions = env.step(acting, [completion.output for completion in completions])
            for w, completion, transition in zip(acting, completions, transitions):
                learnt = harvest.rows < wanted and transition.error is None
                harvest.add(self._worlds[w], completion, transition, learnt)
                self._count(self._worlds[w], transition)
            if self._errors - errors > self.max_errors:
                raise RuntimeError(
                    f"{self.sim.name} failed {self._errors - errors} times in iteration {ctx.iteration}, more than "
                    f"rollout.max_errors={self.max_errors}; the last failure: {self._last_error}"
                )
            ctx.progress("rollout", harvest.rows, wanted)
        for w, world in enumerate(self._worlds):
            harvest.cut(world, env.observation(w))
        return harvest.finish(ctx, first_group=ctx.rank * wanted)

    def metrics(self) -> dict[str, float]:
        """Mean undiscounted return of the last `window` finished lives, decisions taken and failures so far."""
        counts = {"env_steps": float(self._env_steps), "sim_errors": float(self._errors)}
        if not self._returns:
            return counts
        return {f"return_{self.window}": float(np.mean(self._returns)), "lives": float(self._lives), **counts}

    def state_dict(self) -> dict[str, Any]:
        """The worlds between two iterations; without those of a simulator that cannot be saved."""
        if self._env is None:
            return {}
        try:
            simulator = torch.frombuffer(bytearray(self._env.get_state()), dtype=torch.uint8)
        except NotImplementedError as error:
            log.warning("the checkpoint has no simulator state, resuming will start new lives: %s", error)
            simulator = None
        return {
            "simulator": simulator,
            "life_return": [world.life_return for world in self._worlds],
            "life_length": [world.life_length for world in self._worlds],
            "returns": list(self._returns),
            "lives": self._lives,
            "env_steps": self._env_steps,
            "errors": self._errors,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            return
        if len(state["life_return"]) != self.num_envs:
            raise ValueError(
                f"rollout.num_envs is {self.num_envs}, but the checkpoint has {len(state['life_return'])} worlds"
            )
        self._returns = deque(state["returns"], maxlen=self.window)
        self._lives, self._env_steps, self._errors = state["lives"], state["env_steps"], state["errors"]
        if state["simulator"] is None:
            log.warning("the checkpoint has no simulator state: the worlds of %s start new lives", self.sim.name)
            return
        self._env = ContinuedEnv(self.sim.make(self.num_envs))
        self._env.set_state(state["simulator"].numpy().tobytes())
        lives = zip(state["life_return"], state["life_length"])
        self._worlds = [World(life_return=total, life_length=length) for total, length in lives]

    def _evaluate(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self.evaluation is None:
            raise ValueError(
                f"rollout.evaluation is not set, but whole episodes are asked for (purpose {ctx.purpose!r}): "
                "give it a rollout that plays them, for example mmrl.rollouts.env.EnvEpisodes"
            )
        return self.evaluation.collect(prompts, ctx)

    def _open(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> ContinuedEnv:
        """The worlds, started if this is the first time, and known to fit the policy."""
        first = ctx.rank * self.num_envs
        if self._env is None:
            self._env = ContinuedEnv(self.sim.make(self.num_envs))
            seeds = [derived_seed(ctx.seed, "worlds", first + w) for w in range(self.num_envs)]
            given = [prompt.info["seed"] for _, prompt in prompts if "seed" in prompt.info][: self.num_envs]
            self._env.reset([*given, *seeds[len(given) :]])
            self._worlds = [World() for _ in range(self.num_envs)]
        self._check_fit(ctx)
        for w, world in enumerate(self._worlds):
            world.number = first + w
        return self._env

    def _check_fit(self, ctx: Context) -> None:
        """Ask a policy that can tell, once, whether it was made for such worlds."""
        if self._checked is ctx.policy:
            return
        if hasattr(ctx.policy, "check_spaces"):
            venv = self._env.venv
            ctx.policy.check_spaces(venv.single_observation_space, venv.single_action_space)
        self._checked = ctx.policy

    def _request(self, w: int, ctx: Context) -> Request:
        world = self._worlds[w]
        seed = derived_seed(ctx.seed, ctx.purpose, ctx.iteration, world.number, world.draws)
        world.draws += 1
        return Request(self._env.observation(w), seed)

    def _count(self, world: World, transition: Transition) -> None:
        """Statistics over whole lives, which do not care where segments are cut."""
        self._env_steps += 1
        if transition.error is not None:
            self._errors += 1
            self._last_error = transition.error
            log.warning("world %d of %s failed: %s", world.number, self.sim.name, transition.error)
        elif transition.following is not None:
            self._lives += 1
            self._returns.append(world.life_return)
        if transition.following is not None:
            world.life_return, world.life_length = 0.0, 0
