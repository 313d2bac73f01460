"""AI feedback: rollouts that pay a simulator's reward and that of a model of captions, which is fitted first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from mmrl.core.errors import ConfigError, check_at_least, check_fraction, check_interval, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Sim
from mmrl.distributed import parallel
from mmrl.methods.goals.ai_feedback.annotators import CaptionAnnotator
from mmrl.methods.goals.ai_feedback.pairs import (
    CaptionReader,
    LabelledPair,
    ProgressRule,
    collect_captions,
    draw_pairs,
    read_labelled,
    write_pairs,
)
from mmrl.methods.goals.ai_feedback.reward_model import CaptionReward, fit_reward, measure_labels, shape_reward
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.autoreset import AutoresetAdapter
from mmrl.rollouts.env.fixed_horizon import FixedHorizon


@dataclass(frozen=True)
class Shaping:
    """How a decision is paid: env_coef * (simulator's reward) + coef * r' [r' > threshold] / N^exponent.

    Args:
        coef: weight of the reward model.
        env_coef: weight of the simulator's reward.
        exponent: of the count N of the caption in the episode.
        quantile: of the normalised rewards of the pairs' captions, which is the threshold.
    """

    coef: float = 0.1
    env_coef: float = 10.0
    exponent: float = 3.0
    quantile: float = 0.5

    def __post_init__(self) -> None:
        place = "rollout.shaping"
        check_at_least(0, place, coef=self.coef, env_coef=self.env_coef, exponent=self.exponent)
        check_fraction(place, quantile=self.quantile)


@dataclass(frozen=True)
class RewardFit:
    """How the reward model is fitted.

    Args:
        held_out: share of the pairs on which it is measured and not fitted.
        passes: over the pairs.
        batch_size: pairs of a step.
        lr: learning rate.
        buckets: of hashes of words.
        width: of its layers.
    """

    held_out: float = 0.2
    passes: int = 10
    batch_size: int = 64
    lr: float = 1e-3
    buckets: int = 2048
    width: int = 32

    def __post_init__(self) -> None:
        place = "rollout.fit"
        check_interval(place, "[0, 1)", held_out=self.held_out)
        check_at_least(1, place, passes=self.passes, batch_size=self.batch_size, buckets=self.buckets, width=self.width)
        check_positive(place, lr=self.lr)


class AIFeedback(FixedHorizon):
    """AI feedback: `FixedHorizon` with the reward of captions that an annotator's preferences were distilled into.

    Before the first decision scripted players play episodes, pairs of their captions are labelled and the reward model
    is fitted. Evaluations have the simulator's reward alone.
    Source: arXiv:2410.05656, section 3, and Motif, arXiv:2310.00166, sections 3.1 to 3.3.

    Args:
        annotator: labels the pairs.
        labels: file of the labelled pairs; one that exists is read in place of the annotator's answers.
        caption: regular expression, the part of a caption that counts; None for all of it.
        progress: rule that measures progress, for scripted annotators and accuracies; None without one.
        random_fractions: of each scripted player the probability of a random action in place of the expert's.
        episodes: that are played for the pairs.
        decisions: of such an episode at most.
        num_pairs: that are labelled.
        max_failed: share of the pairs that may be without an answer.
        fit: of the reward model.
        shaping: of the reward.
        options: of `FixedHorizon`.
    """

    def __init__(
        self,
        annotator: CaptionAnnotator,
        labels: str,
        caption: str | None = None,
        progress: ProgressRule | None = None,
        random_fractions: Sequence[float] = (1.0, 0.5),
        episodes: int = 64,
        decisions: int = 200,
        num_pairs: int = 2000,
        max_failed: float = 0.5,
        fit: RewardFit | None = None,
        shaping: Shaping | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(1, "rollout", episodes=episodes, decisions=decisions)
        check_at_least(2, "rollout", num_pairs=num_pairs)
        check_fraction("rollout", max_failed=max_failed)
        if not random_fractions:
            raise ValueError("rollout.random_fractions is empty; give at least one player, as [1.0]")
        for fraction in random_fractions:
            check_fraction("rollout", random_fractions=fraction)
        self.annotator, self.labels, self.progress, self.reader = annotator, labels, progress, CaptionReader(caption)
        self.random_fractions, self.episodes, self.decisions = tuple(random_fractions), episodes, decisions
        self.num_pairs, self.max_failed = num_pairs, max_failed
        self.fit, self.shaping = fit or RewardFit(), shaping or Shaping()
        self._model: CaptionReward | None = None
        self._measures: dict[str, float] = {}
        self._paid: list[float] = []  # rewards of the model in the last collection

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self._paid.clear()
        return super().collect(prompts, ctx)

    def metrics(self) -> dict[str, float]:
        """Those of `FixedHorizon`; of the labels `measure_labels`; mean and share of the model's rewards that paid.

        The last two are those of this process.
        """
        paid = np.array(self._paid or [0.0])
        shaped = {"reward": float(paid.mean()), "paid": float((paid != 0).mean())}
        return {**super().metrics(), **{f"ai_feedback/{k}": v for k, v in (self._measures | shaped).items()}}

    def state_dict(self) -> dict[str, Any]:
        model = None if self._model is None else self._model.state_dict()
        return {**super().state_dict(), "reward_model": model, "measures": dict(self._measures)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["reward_model"] is not None:
            self._model = CaptionReward(self.fit.buckets, self.fit.width)
            self._model.load_state_dict(state["reward_model"])
            self._measures = dict(state["measures"])

    def share_states(self, states: Sequence[dict[str, Any]], rank: int, size: int) -> dict[str, Any]:  # type: ignore[override]
        fitted = {name: states[0][name] for name in ("reward_model", "measures")}
        return {**super().share_states(states, rank, size), **fitted}

    def _open(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> AutoresetAdapter:
        if self._env is None:
            sim = simulator_of(ctx.task, "rollout=ai_feedback")
            if self._model is None:
                self._model = self._fit_model(sim, ctx)
            shaped = CaptionRewardSim(sim, self._model, self.reader, self.shaping, self._paid)
            ctx = replace(ctx, task=replace(ctx.task, sim=shaped))  # type: ignore[type-var,call-arg]
        return super()._open(prompts, ctx)

    def _fit_model(self, sim: Sim, ctx: Context) -> CaptionReward:
        """Label pairs, on the first process, and fit the reward model to them, on each."""
        first = parallel.rank_and_size()[0] == 0
        pairs: list[LabelledPair] = parallel.gather([self._label_pairs(sim, ctx)] if first else [])[0]
        fit, labelled = self.fit, [pair for pair in pairs if pair.label is not None]
        if len(labelled) < 2:
            raise ConfigError(
                f"rollout=ai_feedback: the annotator labelled {len(labelled)} of {len(pairs)} pairs and was unsure "
                "about the others, too few for a reward model; raise rollout.num_pairs, or ask in other words"
            )
        fitted = max(1, round(len(pairs) * (1 - fit.held_out)))
        model = CaptionReward(fit.buckets, fit.width, ctx.seed)
        fit_reward(model, pairs[:fitted], fit.passes, fit.batch_size, fit.lr, ctx.seed)
        texts = [text for pair in pairs[:fitted] if pair.label is not None for text in (pair.first, pair.second)]
        model.normalise(texts, self.shaping.quantile)
        self._measures = measure_labels(model, pairs[:fitted], pairs[fitted:])
        return model

    def _label_pairs(self, sim: Sim, ctx: Context) -> list[LabelledPair]:
        """The labelled pairs of the file, or of the annotator, which are written there."""
        path = Path(self.labels)
        if path.is_file():
            return read_labelled(path)
        rng = derive_rng("ai_feedback", ctx.seed)
        task: Any = ctx.task
        seeds = [task[int(i)].info["seed"] for i in rng.integers(len(task), size=self.episodes)]
        captions = collect_captions(sim, seeds, self.random_fractions, self.decisions, self.reader, self.progress, rng)
        pairs = draw_pairs(captions, self.num_pairs, rng)
        answers = self.annotator.label(pairs, rng)
        failed = [answer for answer in answers if isinstance(answer, NoAnswer)]
        if len(failed) > self.max_failed * len(answers):
            raise ConfigError(
                f"rollout=ai_feedback: {len(failed)} of {len(answers)} pairs have no answer, more than max_failed="
                f"{self.max_failed:g} allows; the last: {failed[-1].reason}"
            )
        labelled = [
            LabelledPair(pair.first, pair.second, answer, pair.true_label())
            for pair, answer in zip(pairs, answers, strict=True)
            if not isinstance(answer, NoAnswer)
        ]
        write_pairs(path, labelled)
        return labelled


@dataclass(frozen=True)
class CaptionRewardSim(Sim):
    """The same simulator with the shaped reward of captions.

    Args:
        sim: its environments have `captions`.
        model: of captions.
        reader: of captions.
        shaping: of the reward.
        paid: the model's rewards of all decisions are noted there.
    """

    sim: Sim
    model: CaptionReward
    reader: CaptionReader
    shaping: Shaping
    paid: list[float]

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return CaptionRewardVectorEnv(self.sim.make(num_envs), self)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def sizes(self) -> dict[str, Any]:
        return self.sim.sizes()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


class CaptionRewardVectorEnv(VectorWrapper):
    """Vector environment of `CaptionRewardSim`: the caption after a decision is paid; that of a reset is counted."""

    def __init__(self, env: VectorEnv, sim: CaptionRewardSim):
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(f"{env}: the caption after the last decision is paid; set sim.autoreset=disabled")
        self.sim = sim
        self._counts: list[dict[str, int]] = [{} for _ in range(env.num_envs)]  # of the captions of each episode
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        captions = self.sim.reader.read(self.env)
        for i in np.flatnonzero(mask):
            self._counts[i] = {captions[i]: 1}
        self._over = self._over & ~mask
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        failed = np.asarray(info.get("error", np.zeros(self.num_envs)), object).astype(bool)
        rows, shaping = np.flatnonzero(~self._over & ~failed), self.sim.shaping
        rewards = shaping.env_coef * np.asarray(reward, np.float64)
        if rows.size:
            captions = self.sim.reader.read(self.env)
            for i in rows:
                self._counts[i][captions[i]] = self._counts[i].get(captions[i], 0) + 1
            counts = np.array([self._counts[i][captions[i]] for i in rows])
            values = self.sim.model.score([captions[i] for i in rows])
            paid = shape_reward(values, counts, float(self.sim.model.threshold), shaping.exponent)
            rewards[rows] += shaping.coef * paid
            self.sim.paid.extend(paid.tolist())
        self._over = self._over | terminated | truncated
        return observation, rewards, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The simulator's, and the captions of the episodes so far."""
        counts = {"counts": json.dumps(self._counts), "over": torch.from_numpy(self._over.copy())}
        return {"env": self.env.state_dict(), **counts}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._counts, self._over = json.loads(state["counts"]), state["over"].numpy().copy()
