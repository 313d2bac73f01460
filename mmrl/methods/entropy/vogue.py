"""VOGUE: image noise as exploration, and advantage bonuses from the KL between noisy and clean image and the entropy.

VOGUE: Guiding Exploration with Visual Uncertainty Improves Multimodal Reasoning, 2025, arXiv:2510.01444.

- iterations with noisy images, rarer and rarer: `NoisyImages`; the context without noise: `CleanContext`
- symmetric KL between both: `symmetric_kl`; bonus from it and from the entropy: `bounded_bonus`, `UncertaintyBonus`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, evaluate_rows
from mmrl.core.batch import Batch
from mmrl.core.columns import COLLATED
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.ops.masked import masked_mean, zero_outside
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.base import EpisodeTransform


def noise_probability(iteration: int, iterations: int) -> float:
    """max(0, 1 - iteration / iterations): falls linearly to 0."""
    return max(0.0, 1 - iteration / iterations)


class NoisyImages(Rollout):
    """Single-turn completions, with Gaussian noise on the images of all prompts in some iterations.

    `noise_probability` is that of an iteration with noise. All answers to a prompt see the same noise. Source: VOGUE,
    2025, arXiv:2510.01444.

    Args:
        iterations: after which images have no noise.
        std: of the noise, as a fraction of the largest pixel value.
    """

    def __init__(self, iterations: int = 200, std: float = 0.4):
        check_at_least(1, "rollout", iterations=iterations)
        check_positive("rollout", std=std)
        self.iterations, self.std = iterations, std

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        draw = derive_rng(ctx.seed, ctx.purpose, "branch", ctx.iteration).random()
        if draw >= noise_probability(ctx.iteration, self.iterations):
            return SingleTurn().collect(prompts, ctx)
        plain = dict(prompts)
        noisy = [(slot, replace(prompt, images=self._add_noise(slot, prompt, ctx))) for slot, prompt in prompts]
        return [replace(episode, prompt=plain[episode.group]) for episode in SingleTurn().collect(noisy, ctx)]

    def _add_noise(self, slot: int, prompt: Prompt, ctx: Context) -> tuple[np.ndarray, ...]:
        if not prompt.images:
            raise ValueError(f"rollout: {prompt.key!r} has no images for noise; VOGUE needs a task with images")
        rng = derive_rng(ctx.seed, ctx.purpose, "noise", ctx.iteration, slot)
        noisy = (image + rng.normal(0, 255 * self.std, image.shape) for image in prompt.images)
        return tuple(image.round().clip(0, 255).astype(np.uint8) for image in noisy)


@dataclass(frozen=True)
class CleanContext(EpisodeTransform):
    """Add the prompt with its images as they are as a second context of each answer.

    Args:
        name: of the context.
    """

    name: str = "clean"

    def contexts(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(episode, turns=self._turns(episode, ctx)) for episode in episodes]

    def _turns(self, episode: Episode, ctx: Context) -> list[Turn]:
        clean_inputs = {self.name: ctx.policy.encode(episode.prompt.observation)} if episode.turns else {}
        done = (replace(turn.completion, others={**turn.completion.others, **clean_inputs}) for turn in episode.turns)
        return [replace(turn, completion=each) for turn, each in zip(episode.turns, done)]


def symmetric_kl(p: Tensor, q: Tensor) -> Tensor:
    """(KL(p || q) + KL(q || p)) / 2 of log-probabilities [..., V] in nats, over the last axis."""
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2


def bounded_bonus(amount: Tensor, advantage: Tensor, alpha: float, beta: float) -> Tensor:
    """Bonus min(alpha * amount, |A| / beta); for beta > 1 it never changes the sign of an advantage."""
    return torch.minimum(alpha * amount, advantage.abs() / beta)


@dataclass(frozen=True, kw_only=True)
class UncertaintyBonus(ForwardAnnotator):
    """Add exploration bonuses to the advantages: for the entropy of a choice, and for the KL under image noise.

    A' = A + min(alpha_entropy H, |A| / beta_entropy) + min(alpha_vision u, |A| / beta_vision), H the entropy of the
    choice and u the mean over the row of the symmetric KL between the policy in the row's context and in the one
    without noise, before the update; 0 without noise. The statistic `ChoiceLogprobs` is its `choice_logprobs`. Source:
    VOGUE, 2025, arXiv:2510.01444.

    Args:
        alpha_entropy: advantage per nat of entropy.
        beta_entropy: the bonus is at most |A| / beta_entropy.
        alpha_vision: advantage per nat of divergence.
        beta_vision: the bonus is at most |A| / beta_vision.
        context: without noise.
    """

    alpha_entropy: float = 0.4
    beta_entropy: float = 2.0
    alpha_vision: float = 1.0
    beta_vision: float = 2.0
    context: str = "clean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(0, "uncertainty_bonus", alpha_entropy=self.alpha_entropy, alpha_vision=self.alpha_vision)
        check_positive("uncertainty_bonus", beta_entropy=self.beta_entropy, beta_vision=self.beta_vision)

    def reads(self) -> frozenset[str]:
        return COLLATED | {"advantages"}

    def needs(self) -> frozenset[str]:
        return frozenset({"choice_logprobs"})

    def contexts(self) -> frozenset[str]:
        return frozenset({self.context})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]

        # (rows, choices, 2) entropy, and KL between the row's context and the clean one
        def measure(rows: Batch) -> Tensor:
            out, clean = ctx.policy(rows), ctx.policy(rows.with_context(self.context))
            both = (each.extra["choice_logprobs"] for each in (out, clean))
            return torch.stack([out.entropy, symmetric_kl(*both)], dim=-1)

        entropy, kl = evaluate_rows(ctx.policy, batch, measure, self.rows, ctx.device).unbind(-1)
        # (rows,) mean KL of the row; (rows, choices) bonus
        advantages, kl = zero_outside(batch["advantages"], mask), masked_mean(kl, mask, dim=1)
        bonus = bounded_bonus(entropy, advantages, self.alpha_entropy, self.beta_entropy)
        bonus += bounded_bonus(kl[:, None], advantages, self.alpha_vision, self.beta_vision)
        return batch.with_columns(advantages=zero_outside(advantages + bonus, mask))
