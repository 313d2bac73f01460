"""Policies with a continuous action head: a chain of transitions, given a context that is encoded once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.ops.flow import mean_velocity
from mmrl.ops.gaussian import normal_entropy, normal_logprob
from mmrl.policies.base import Action, Policy
from mmrl.policies.processor import Processor
from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.chains import Chain, DenoisingTarget, TransitionParams
from mmrl.policies.vla.chains.base import Prefix, column
from mmrl.policies.vla.chains.real_time import sample_continuation


@dataclass
class EncodedContext:
    """Encoding of N contexts: what the head reads, values, and features to cache."""

    prefix: Prefix
    values: Tensor | None = None  # [N]
    cached_features: dict[str, Any] = field(default_factory=dict)  # as of Action
    extra: dict[str, Tensor] = field(default_factory=dict)  # as of PolicyOutput


class ChainPolicy(Policy):
    """Samples a chunk of H x A actions from noise in K transitions. Subclasses have `encode_context` and `predict`.

    A choice is control step h of chain state x_i, so that T counts (K + 1) x H choices [A], block after block: x_0,
    x_1, ..., x_K. The action_mask is False for x_0 and for results of deterministic transitions. Control steps that
    were not executed are masked in every block. A log-probability is the sum over the A dimensions, in nats; the
    objective combines choices to ratios. A demonstration is a chain without transitions: one block, the chunk. Chains
    that do not start from noise have no x_0.

    The context is encoded once per decision, the network predicts once per transition; learning runs it at the
    stochastic transitions alone. `sampling.decode` "mean" and "argmax" draw no transition. The temperature
    multiplies every standard deviation.

    A network whose state is larger than the chunk has an `action_padding`. Its entries follow the chain's deterministic
    transitions and are no choices; noise in the other coordinates alone does not change the marginals of the flow.
    Source: Black et al., "pi0", 2024, arXiv:2410.24164; Chen et al., "pi_RL", 2025, section 4, arXiv:2510.25889.
    """

    chain: Chain
    teacher: Chain | None = None  # sampler of `distillation_target`; None for the chain itself
    chunk: int
    action_dims: int
    processor: Processor
    timesteps_per_sample: int = 1  # denoising timesteps drawn for each demonstrated row, in one pass
    bound: float | None = 1.0  # actions are clipped to [-bound, bound] in the network's units
    action_padding: ActionPadding | None = None

    @abstractmethod
    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        """Encode N collated contexts."""

    @abstractmethod
    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The network's prediction at states x [M, S, D] and times [M], and the log-std if it has one; float32.

        `end_time` [M] is the time that the transition leads to, for networks that read it.
        """

    @torch.no_grad()
    def distillation_target(self, batch: Batch) -> Tensor:
        """Chunks [N, H, A] where the teacher's deterministic transitions end from the noise x_0 of every row."""
        batch.require({"action"}, f"{type(self).__name__}, to compute distillation targets,")
        if self.chain.steps != 1:
            raise ValueError(
                f"a distillation target replaces one transition, but policy.chain {type(self.chain).__name__} has "
                f"{self.chain.steps}: set policy.chain.steps=1"
            )
        chain = self.teacher or self.chain
        rows = torch.arange(batch.rows, device=batch["action"].device)
        prefix, x, mask = self.encode_context(batch.observation()).prefix, self._state(batch, rows, 0 * rows), rows < 0
        for i in range(chain.steps):
            x = self._step(prefix, x, 0 * rows + i, mask, 1.0, chain).mean
        return self._core(x)

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"denoising_error"}) | cls.provides(init_args)

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        owner = torch.arange(len(noise), device=self.device)
        return self.act_groups(observation, owner, sampling, noise)

    @torch.no_grad()
    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        """Sample the chain from every row's own noise; contexts are encoded once."""
        if sampling.truncated:
            raise ValueError(
                "a continuous action head cannot drop unlikely choices: leave sampling.top_k, top_p and min_p as they "
                "are and lower sampling.temperature"
            )
        encoded = self.encode_context(observation) if self.captured is None else self.captured(self, observation)
        prefix, device, count = select_prefix(encoded.prefix, owner), owner.device, len(noise)
        shape = self.state_shape
        x = noise.normal(*shape).to(device) if self.chain.stores_noise else torch.zeros(count, *shape, device=device)
        stochastic = self.chain.stochastic_mask(noise) & (sampling.decode == "sample")
        # the number of draws does not depend on what is stochastic, so that streams stay aligned
        fresh = noise.normal(self.chain.max_stochastic_steps, self.chunk, self.action_dims)
        states, logprobs = ([x], [x.new_zeros(count, self.chunk)]) if self.chain.stores_noise else ([], [])
        for i in range(self.chain.steps):
            index = torch.full((count,), i, device=device)
            step = self._step(prefix, x, index, stochastic[:, i].to(device), sampling.temperature)
            x = step.mean + step.std * self.pad_actions(
                fresh[:, min(i, self.chain.max_stochastic_steps - 1)].to(device)
            )
            states.append(x)
            logprobs.append(normal_logprob(*map(self._core, (x, step.mean, step.std))).sum(dim=-1))
        mask = torch.cat([stochastic.new_zeros(count, 1), stochastic], dim=1) if self.chain.stores_noise else stochastic
        choices, rest = self._to_choices(states)
        return Action(
            action=choices,
            behavior_logprobs=torch.cat(logprobs, dim=1),
            action_mask=mask.to(device).repeat_interleave(self.chunk, dim=1),
            output=self.decode_chunks(self.crop_actions(x)),
            values=None if encoded.values is None else encoded.values[owner],
            extra=rest,
            cached_features={name: part[owner] for name, part in encoded.cached_features.items()},
        )

    @torch.no_grad()
    def continue_chunks(
        self, observation: Mapping[str, Any], previous: Tensor, weights: Tensor, limit: float, noise: Noise
    ) -> Tensor:
        """Chunks [N, H, A] that continue `previous` [N, H, A] where `weights` [N, H, A] say so.

        Raises:
            ValueError: the head is no flow.
        """
        if self.chain.prediction_type != "velocity" or self.chain.reads_end_time:
            raise ValueError(f"{type(self.chain).__name__} predicts no velocity, which real-time chunking guides")
        return sample_continuation(self, self.encode_context(observation).prefix, noise, previous, weights, limit)

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        return self.encode_context(observation).values

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score the stochastic transitions of the stored chains [N, T, A]; other choices get 0.

        extra: denoising_error [N, T, A, L] of the network at L timesteps of every demonstrated chunk (0 elsewhere),
        when the batch has demonstrations; and the `extra` of the encoding.
        """
        batch.require({"action", "action_mask", "temperature"}, type(self).__name__)
        encoded = self.encode_context(batch.observation())
        logprobs, entropy = self._score(encoded.prefix, batch)
        extra = dict(encoded.extra)
        if "is_demo" in batch and batch["is_demo"].any():
            extra["denoising_error"] = self._denoising_error(encoded.prefix, batch)
        return PolicyOutput(logprobs, entropy, encoded.values, extra)

    def _step(
        self,
        prefix: Prefix,
        x: Tensor,
        index: Tensor,
        drawn: Tensor,
        temperature: Tensor | float,
        chain: Chain | None = None,
    ) -> TransitionParams:
        """Compute the transition from x with network and chain, in sampling and in learning."""
        chain = chain or self.chain
        prediction, log_std = self.predict(
            prefix, x, chain.time(index), chain.time(index + 1) if chain.reads_end_time else None
        )
        mean, std = chain.step(x, index, prediction, log_std, drawn)
        if self.action_padding is not None:
            still = chain.step(x, index, prediction, log_std, torch.zeros_like(drawn)).mean
            inside = self.action_padding.inside(x.device)
            mean, std = torch.where(inside, mean, still), std * inside
        return TransitionParams(mean, std * temperature)

    def _score(self, prefix: Prefix, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities and entropies [N, T] of the stochastic transitions in one pass of the network."""
        chain = batch["action"].unflatten(1, (-1, self.chunk))
        stochastic = batch["action_mask"].unflatten(1, (-1, self.chunk)).any(dim=2)  # [N, blocks]
        if self.chain.stores_noise:
            stochastic = stochastic & (torch.arange(stochastic.shape[1], device=stochastic.device) > 0)
        rows, block = stochastic.nonzero(as_tuple=True)
        logprobs = torch.zeros(chain.shape[:3], device=chain.device)
        if not len(rows):  # a pass with an unused result keeps every parameter in the graph
            first = torch.zeros(1, dtype=torch.long, device=chain.device)
            state = torch.zeros(1, *self.state_shape, device=chain.device)
            idle = self._step(select_prefix(prefix, first), state, first, first > 0, 1.0).mean.sum()
            return (logprobs + 0 * idle).flatten(1), logprobs.flatten(1)
        index = block - 1 if self.chain.stores_noise else block
        stored = self.chain.stores_noise
        before = self._state(batch, rows, index) if stored else chain.new_zeros(len(rows), *self.state_shape)
        every = torch.ones_like(rows, dtype=torch.bool)
        step = self._step(select_prefix(prefix, rows), before, index, every, batch["temperature"][rows, None, None])
        mean, std = self._core(step.mean), self._core(step.std)
        transition_logprobs = normal_logprob(chain[rows, block], mean, std).sum(dim=-1)
        openness = normal_entropy(std).sum(dim=-1)
        return (
            logprobs.index_put((rows, block), transition_logprobs).flatten(1),
            logprobs.index_put((rows, block), openness).flatten(1),
        )

    def _denoising_error(self, prefix: Prefix, batch: Batch) -> Tensor:
        """Compute prediction - target [N, T, A, L] at sampled timesteps, which depend only on `row_seed`."""
        batch.require({"row_seed"}, f"{type(self).__name__}, to learn from demonstrations,")
        rows = batch["is_demo"].nonzero()[:, 0]
        noise = Noise(batch["row_seed"][rows].cpu().numpy())
        chunk = batch["action"][rows, : self.chunk].float()
        chunk = chunk if self.action_padding is None else self.action_padding.pad_last(chunk)
        shape = (*batch["action"].shape[:2], self.action_dims, self.timesteps_per_sample)
        target = DenoisingTarget.concatenate(
            [self.chain.sample_target(chunk, noise) for _ in range(self.timesteps_per_sample)]
        )
        error = self._core(
            self._prediction_error(select_prefix(prefix, rows.repeat(self.timesteps_per_sample)), target)
        )
        error = error.unflatten(0, (self.timesteps_per_sample, -1)).permute(1, 2, 3, 0)  # [D, H, A, L]
        out = torch.zeros(shape, device=error.device)
        steps = torch.arange(self.chunk, device=rows.device)
        return out.index_put((rows[:, None], steps[None]), error)

    def _prediction_error(self, prefix: Prefix, denoising: DenoisingTarget) -> Tensor:
        """Compute the prediction minus its target, [M, S, D]."""
        x, time, target, end_time = denoising
        prediction, _ = self.predict(prefix, x, time, end_time)
        if end_time is None:
            return prediction - target
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # other attention kernels have no forward-mode derivative
            along = (target, torch.ones_like(time))
            _, du_dt = jvp(lambda x, time: self.predict(prefix, x, time, end_time)[0], (x, time), along)  # type: ignore[misc]
        return prediction - mean_velocity(target, du_dt, column(time), column(end_time))

    # ---------------------------------------------------------------- the chunk within the network's state

    @property
    def state_shape(self) -> tuple[int, int]:
        """Steps and numbers of the network's state; at least those of the chunk."""
        return (
            (self.chunk, self.action_dims)
            if self.action_padding is None
            else (self.action_padding.steps, self.action_padding.width)
        )

    def _core(self, state: Tensor) -> Tensor:
        return state if self.action_padding is None else self.action_padding.core(state)

    def pad_actions(self, chunk: Tensor) -> Tensor:
        """A chunk as a state of the network, zeros beside it."""
        return chunk if self.action_padding is None else self.action_padding.pad_zeros(chunk)

    def crop_actions(self, state: Tensor) -> Tensor:
        """The chunk of a state, within the bound."""
        chunk = self._core(state)
        return chunk if self.bound is None else chunk.clamp(-self.bound, self.bound)

    def decode_chunks(self, chunks: Tensor) -> list[np.ndarray]:
        """Chunks [N, H, A] in the simulator's units."""
        return list(self.processor.decode(chunks.cpu().numpy()))

    def _to_choices(self, states: list[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Convert states to choices [N, T, A] and padding."""
        if self.action_padding is None:
            return torch.cat(states, dim=1), {}
        chunks, rests = zip(*map(self.action_padding.split, states))
        return torch.cat(chunks, dim=1), {"padding_actions": torch.cat(rests, dim=1)}

    def _state(self, batch: Batch, rows: Tensor, block: Tensor) -> Tensor:
        """Return the stored states [M, S, D] of rows, each at one block."""
        chunk = batch["action"].unflatten(1, (-1, self.chunk))[rows, block]
        if self.action_padding is None:
            return chunk
        batch.require({"padding_actions"}, f"{type(self).__name__}, to score sampled chains,")
        return self.action_padding.join(chunk, batch["padding_actions"].unflatten(1, (-1, self.chunk))[rows, block])


def select_prefix(prefix: Prefix, rows: Tensor) -> Prefix:
    """Select the encoded context of some rows, in the order given."""
    return tuple(part[rows] for part in prefix)
