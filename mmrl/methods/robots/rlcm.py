"""RLCM: clipped policy gradient over the steps of a consistency model's multi-step sampler.

RL for Consistency Models: Faster Reward Guided Text-to-Image Generation, 2024, arXiv:2404.03673.

- the sampler, an MDP with Gaussian transitions: `ConsistencyChain`, and the head that it reads: `ConsistencyPolicy`
- the advantage, from running statistics of each prompt's rewards: `normalise_by_prompt`, `PromptAdvantage`
- the clipped loss with log-probs averaged over action dimensions: `mmrl.objectives.policy_chain.ChainSurrogate` with
  join "transition" and reduction "mean"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_interval, check_positive
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Episode
from mmrl.policies.vla.chains import CPS, DenoisingTarget
from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.transforms.base import StatefulTransform


@dataclass(frozen=True)
class ConsistencyChain(CPS):
    """Multi-step consistency sampling: x' ~ N((1 - t') f, t'^2 I), f = x - t u(x, t, 0) the predicted chunk.

    u is the average velocity from time t to 0, so that f is the consistency function. All transitions but the last are
    stochastic; the last one, t' = 0, is x' = f and has no log-prob. A transition that is not drawn keeps the noise that
    the prediction implies in place of fresh noise. This is CPS at noise level 1 on average velocities. Source: RLCM,
    2024, section 4.1, arXiv:2404.03673; Consistency Models, 2023, algorithm 1, arXiv:2303.01469. Differs: a straight
    path between action and noise, with alpha = 1 - t and sigma = t; demonstrations are cloned by a mean flow.

    Args:
        steps: K, at least 2.
        noise_level: 1; less keeps a part of the predicted noise, as CPS does.
        single_stochastic_step: false; true draws one transition of each row.
    """

    noise_level: float = 1.0
    single_stochastic_step: bool = False
    prediction_type = "average_velocity"  # type: ignore[assignment]
    reads_end_time = True
    predicts_std = True  # as the mean flow that it starts from; the chain does not read it

    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        raise ValueError(
            "policy.chain ConsistencyChain is not trained on demonstrations: start from the clone of a MeanFlow, "
            "start=mean_flow_bc, which has the same network"
        )


class ConsistencyPolicy(ActionFlowPolicy):
    """VLA policy whose network predicts average velocities down to time 0, wherever a transition ends.

    It has the weights of a mean flow, whose standard deviation is not used and frozen. Arguments: as of
    ActionFlowPolicy.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        if self.expert.log_std is not None:
            self.expert.log_std.requires_grad_(False)

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return super().predict(prefix, x, time, torch.zeros_like(time))


def normalise_by_prompt(
    rewards: Sequence[float],  # of an iteration, in order
    prompts: Sequence[str],  # of the same length
    buffers: Mapping[str, Sequence[float]],  # each prompt's recent rewards, those of this iteration included
    min_count: int,
    max_advantage: float,
    epsilon: float = 1e-6,
) -> list[float]:
    """Advantages (r - mean) / (std + epsilon), clamped to [-max_advantage, max_advantage].

    Mean and population standard deviation are those of the prompt's buffer, or of the whole iteration as long as the
    buffer has fewer than `min_count` rewards. Exactly 0 where all of these rewards are equal. Source: RLCM, 2024,
    arXiv:2404.03673, and its released code, Owen-Oertell/rlcm; DDPO, 2023, section 6.1, arXiv:2305.13301.
    """
    # (rewards,) of the iteration, the statistics for prompts with few rewards
    every = np.array(rewards, dtype=np.float64)
    result = []
    for reward, prompt in zip(every, prompts):
        # one prompt's rewards over iterations, or those of the iteration while there are fewer than min_count
        recent = np.array(buffers[prompt], dtype=np.float64)
        values = recent if len(recent) >= min_count else every
        advantage = 0.0 if np.ptp(values) == 0 else (reward - values.mean()) / (values.std() + epsilon)
        result.append(float(np.clip(advantage, -max_advantage, max_advantage)))
    return result


@dataclass(frozen=True)
class PromptAdvantage(StatefulTransform):
    """Replace rewards by `normalise_by_prompt`: their distance from the running mean of their prompt, in its std.

    The rewards of an iteration enter the buffers before they are normalised; a buffer keeps the latest ones of its
    prompt over iterations. A prompt has to come back for its buffer to fill: data.curriculum=fixed. Leave the rewards
    as they are afterwards: group_advantage with baseline and scale null, without dropping zero-variance groups. Source:
    as of `normalise_by_prompt`.

    Args:
        buffer_size: number of rewards that are kept of a prompt.
        min_count: below this number the statistics of the iteration are used.
        max_advantage: bound of |advantage|, in standard deviations.
    """

    buffer_size: int = 16
    min_count: int = 16
    max_advantage: float = 10.0
    _buffers: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_interval("prompt_advantage", f"[1, {self.buffer_size}]", min_count=self.min_count)
        check_positive("prompt_advantage", max_advantage=self.max_advantage)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        local_rewards = [(e.group, e.sample_index, e.prompt.key, float(e.reward)) for e in episodes]
        everyone = sorted(ctx.collector.gather(local_rewards))  # in one order, however many processes there are
        for _, _, prompt, reward in everyone:
            if not math.isfinite(reward):
                raise ValueError(f"prompt_advantage: a reward of {prompt!r} is {reward}; check data.reward")
            self._buffers[prompt] = [*self._buffers.get(prompt, []), reward][-self.buffer_size :]
        rewards, prompts = [entry[3] for entry in everyone], [entry[2] for entry in everyone]
        advantages = normalise_by_prompt(rewards, prompts, self._buffers, self.min_count, self.max_advantage)
        advantage = {entry[:2]: value for entry, value in zip(everyone, advantages)}
        return [replace(e, reward=advantage[e.group, e.sample_index]) for e in episodes]

    def state_dict(self) -> dict[str, Any]:
        return {prompt: list(rewards) for prompt, rewards in self._buffers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._buffers.clear()
        self._buffers.update({prompt: list(rewards) for prompt, rewards in state.items()})
