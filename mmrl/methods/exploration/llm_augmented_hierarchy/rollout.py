"""Rollouts of LLM Augmented Hierarchical Agents: decisions among skills, with a prior over them beside the state.

LLM Augmented Hierarchical Agents, 2023, arXiv:2311.05596.

- environments that show the prior: `PriorVectorEnv`, `PriorSim`
- training: `SkillRollout`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Prompt, Sim, Turn
from mmrl.distributed import parallel
from mmrl.methods.exploration.llm_augmented_hierarchy.policy import PRIOR, WEIGHT
from mmrl.methods.exploration.llm_augmented_hierarchy.priors import CachedPrior, SkillPrior
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.exchange import exchange_sim
from mmrl.rollouts.options import ELAPSED, add_durations

_NEED = "rollout=skills needs a policy that keeps how long skills were played: take policy=skills"


@runtime_checkable
class SkilledSim(Protocol):
    """A simulator whose actions are skills.

    Its environments have `captions()`, every state in words, which with the task tells the right skill; their `infos`
    have `executed` int [n], decisions of the last skill, and the score `decisions`, those of the episode.
    """

    skills: Sequence[str]  # in words

    def expert(self, env: Any) -> np.ndarray:
        """The right skill in each environment, int64 [n]."""


class PriorVectorEnv(VectorWrapper):
    """Environments whose observations have a prior over skills, its weight, and the decisions played so far.

    Args:
        env: of a `SkilledSim`, with observations that are vectors.
        sim: the simulator.
        prior: over its skills.
    """

    def __init__(self, env: VectorEnv, sim: SkilledSim, prior: CachedPrior):
        super().__init__(env)
        self.sim, self.prior, self.skills = sim, prior, list(sim.skills)
        self._elapsed = np.zeros(env.num_envs, np.float32)
        self.single_observation_space = spaces.Dict(
            {
                "state": env.single_observation_space,
                PRIOR: spaces.Box(-np.inf, 0, (len(self.skills),), np.float32),
                WEIGHT: spaces.Box(0, 1, (), np.float32),
                ELAPSED: spaces.Box(0, np.inf, (), np.float32),
            }
        )
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(seed=seed, options=options)
        starts = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self._elapsed = np.where(starts, 0, self._elapsed).astype(np.float32)
        return self._show(observation), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, *others, infos = self.env.step(actions)
        self._elapsed = self._elapsed + infos["executed"].astype(np.float32)
        return self._show(observation), *others, infos  # type: ignore[return-value]

    def _show(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        states, experts = self.env.captions(), self.sim.expert(self.env)  # type: ignore[attr-defined]
        prior = np.stack([self.prior(text, self.skills, int(expert)) for text, expert in zip(states, experts)])
        weight = np.full(self.num_envs, self.prior.weight, np.float32)
        return {"state": observation, PRIOR: prior, WEIGHT: weight, ELAPSED: self._elapsed.copy()}


@dataclass(frozen=True)
class PriorSim(Sim):
    """The same simulator with a prior over its skills beside the state.

    Args:
        sim: a `SkilledSim`.
        prior: over its skills.
    """

    sim: Sim
    prior: CachedPrior

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return PriorVectorEnv(self.sim.make(num_envs), self.sim, self.prior)  # type: ignore[arg-type]

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


class SkillRollout(EpisodicRollout):
    """Whole episodes of decisions among skills, whose choice a prior biases: pi(k | s) p(k | s)^weight, normalised.

    Evaluation plays `EpisodicRollout`, without a prior. Rows have `durations`, which `OptionGAE` discounts by.
    Source: LLM Augmented Hierarchical Agents, 2023, arXiv:2311.05596, section 3.

    Args:
        prior: over the skills; None for none, the baseline.
        weight: lambda in [0, 1], the exponent of the prior; give it a schedule that ends at 0.
        epsilon: least probability of a skill under the prior, before all are normalised.
        options: further arguments of `EpisodicRollout`.
    """

    def __init__(self, prior: SkillPrior | None = None, weight: float = 1.0, epsilon: float = 0.01, **options: Any):
        super().__init__(**options)
        self.cached = CachedPrior(prior, epsilon, weight)
        self.weight = weight
        self._counts: dict[str, float] = {}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"durations"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self.cached.weight = self.weight  # a schedule may have changed it
        episodes = super().collect(prompts, exchange_sim(ctx, PriorSim(find_skilled_sim(ctx), self.cached)))
        for episode in episodes:
            add_durations(episode, _NEED)
        self._counts = count_choices([turn for episode in episodes for turn in episode.turns])
        return episodes

    def metrics(self) -> dict[str, float]:
        """Mean duration of a skill; weight of the prior, states it was asked about, decisions for what it favours."""
        counts = parallel.gather([self._counts])
        total = {name: sum(each.get(name, 0.0) for each in counts) for name in ("rows", "decisions", "agreements")}
        rows = max(total["rows"], 1.0)
        metrics = {"skills/duration": total["decisions"] / rows}
        if self.cached.prior is None:
            return metrics
        states = max(parallel.gather([float(len(self.cached.states))]))
        agreement = {"prior/agreement": total["agreements"] / rows}
        return {**metrics, **agreement, "prior/weight": float(self.weight), "prior/states": states}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "cached": self.cached, "weight": self.weight, "_counts": {}}


def find_skilled_sim(ctx: Context) -> Any:
    """The simulator of a context's task, whose actions are skills.

    Raises:
        ConfigError: they are not.
    """
    sim = simulator_of(ctx.task, "rollout=skills")
    if not isinstance(sim, SkilledSim):
        raise ConfigError(
            f"rollout=skills chooses among skills, and sim {sim.name!r} has none that it names: take sim=craft_skills, "
            "and sim.workers=0"
        )
    return sim


def count_choices(turns: Sequence[Turn]) -> dict[str, float]:
    """Rows, decisions of their skills, and rows whose skill is the one that the prior favours."""
    agreements = [int(turn.completion.observation[PRIOR].argmax()) == int(turn.completion.action[0]) for turn in turns]
    decisions = sum(float(turn.completion.extra["durations"]) for turn in turns)
    return {"rows": float(len(turns)), "decisions": decisions, "agreements": float(sum(agreements))}
