"""HIL-SERL: rollouts in which a scripted human takes over from the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

from mmrl.core.columns import Column, register_columns
from mmrl.core.transitions import ActionBatch
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling
from mmrl.policies.control.uniform import UniformPolicy
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.autoreset import AutoresetAdapter
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.takeover import TakeoverRule, sum_distances

register_columns({"intervention": Column("[N]", "bool", "HIL-SERL: a human chose the action in place of the policy")})


class InterventionRollout(FixedHorizon):
    """HIL-SERL: `FixedHorizon` with a scripted human, whose actions are played and stored in place of the policy's.

    The human is the simulator's expert. `TakeoverRule` says when: where no step of the last `patience` came nearer to
    the goal, for `duration` steps. A policy that gets on by itself is left alone, so that interventions become rare as
    it learns. The column `intervention` marks the human's rows. The simulator needs a scripted expert and scores that
    end in `distance_m`, one control step per decision, and one process.
    Source: Luo et al., 2024, arXiv:2410.21845, section III; there a person with a SpaceMouse decides.

    Args:
        patience: control steps without progress before the human takes over.
        duration: control steps that the human acts.
        margin: by which the distance has to become smaller to be progress, metres.
        options: of `FixedHorizon`.
    """

    def __init__(self, patience: int = 10, duration: int = 5, margin: float = 0.005, **options: Any):
        super().__init__(**options)
        self._rule = TakeoverRule(patience, duration, margin)
        self._scores: _Scores | None = None
        self._saved_rule: dict[str, np.ndarray] | None = None
        self._decisions = self._human_steps = 0  # of the present collection

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self._decisions = self._human_steps = 0
        return super().collect(prompts, replace(ctx, engine=_HumanEngine(ctx, self)))  # type: ignore[arg-type]

    def metrics(self) -> dict[str, float]:
        """Those of `FixedHorizon`, and the share of the last collection's decisions that the human took."""
        return {**super().metrics(), "rollout/interventions": self._human_steps / max(self._decisions, 1)}

    def take_over(self, acts: ActionBatch, ctx: Context) -> ActionBatch:
        """Replace the actions of the environments in which the human acts, and mark them."""
        env, sim = self._env, simulator_of(ctx.task, "rollout of HIL-SERL")
        assert env is not None and self._scores is not None
        acting = np.array(env.acting_envs)
        starts = np.array([trajectory.episode_length == 0 for trajectory in self._trajectories])
        self._rule.reset(starts)
        # a score is that of the state before the decision; at the start of an episode there is none yet
        distance = np.where(starts, np.inf, self._scores.distances(sim.name))
        human = self._rule.decide(distance)[acting]  # [n] bool
        self._decisions, self._human_steps = self._decisions + len(acting), self._human_steps + int(human.sum())
        columns = {**acts.columns, "intervention": torch.from_numpy(human)}
        output = list(acts.output)
        if human.any():
            actor: Any = ctx.policy.actor if isinstance(ctx.policy, UniformPolicy) else ctx.policy
            script = np.asarray(sim.expert(env.venv), np.float32)[:, 0]  # type: ignore[attr-defined]
            columns["action"] = columns["action"].clone()
            for row in np.flatnonzero(human):
                output[row] = script[acting[row]].reshape(np.shape(output[row]))
                columns["action"][row] = actor.encode_demonstration({}, output[row])
        return ActionBatch(columns, output, acts.deferred)

    def state_dict(self) -> dict[str, Any]:
        scores = {} if self._scores is None else {name: np.array(c) for name, c in self._scores.columns.items()}
        human = {"rule": self._rule.state_dict(), "scores": scores}
        return {**super().state_dict(), "human": _tensors(human)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._saved_rule = _arrays(state["human"])

    def _open(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> AutoresetAdapter:
        if self._env is None:
            sim = simulator_of(ctx.task, "rollout of HIL-SERL")
            if not hasattr(sim, "expert"):
                raise ValueError(
                    f"sim {sim.name!r} has no scripted expert to take over; take sim=positions, or train with "
                    "rollout=fixed_horizon"
                )
        env = super()._open(prompts, ctx)
        if not isinstance(env.venv, _Scores):
            env.venv = self._scores = _Scores(env.venv)
            self._rule.begin(env.venv.num_envs)
            if self._saved_rule is not None:
                self._rule.load_state_dict(self._saved_rule["rule"])  # type: ignore[arg-type]
                self._scores.columns = dict(self._saved_rule["scores"])
        return env


class _Scores(VectorWrapper):
    """Keeps the scores of the last step of a vector environment."""

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        self.columns: dict[str, np.ndarray] = {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *result, infos = self.env.step(actions)
        self.columns = {name: np.array(column) for name, column in infos.get("scores", {}).items()}
        return *result, infos  # type: ignore[return-value]

    def distances(self, name: str) -> np.ndarray:
        """Distances to the goal [n]; infinite before the first step."""
        return sum_distances(self.columns, name) if self.columns else np.full(self.num_envs, np.inf)

    def __getattr__(self, name: str) -> Any:
        """What the environment has beside gymnasium's interface, such as `state_dict`."""
        return getattr(self.env, name)


@dataclass
class _HumanEngine:
    """The engine of a collection, after which a human may choose another action."""

    ctx: Context
    rollout: InterventionRollout

    def act(self, observation: Mapping[str, Any], seeds: Sequence[int], sampling: Sampling) -> Sequence[Completion]:
        acts = self.ctx.engine.act(observation, seeds, sampling)
        if not isinstance(acts, ActionBatch):
            raise ValueError(f"{type(self.ctx.policy).__name__} gives no columns of actions; take policy=squashed")
        return self.rollout.take_over(acts, self.ctx)

    def predict_values(self, observations: Sequence[Mapping[str, Any]]) -> list[float]:
        return self.ctx.engine.predict_values(observations)


def _tensors(node: Any) -> Any:
    """Arrays as tensors, which checkpoints hold without pickled objects."""
    return {name: _tensors(part) for name, part in node.items()} if isinstance(node, dict) else torch.from_numpy(node)


def _arrays(node: Any) -> Any:
    return {name: _arrays(part) for name, part in node.items()} if isinstance(node, dict) else node.numpy().copy()
