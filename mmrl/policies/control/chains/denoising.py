"""Policy on a state vector whose chunks of actions are sampled by a denoising chain of a multilayer perceptron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from mmrl.core.types import Observation
from mmrl.policies import policy_folder
from mmrl.policies.control.encoder import ObservationEncoder, encode_single, perceptron
from mmrl.policies.processor import Processor, check_chunk
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import Prefix

TIME_FEATURES = 16


class DenoisingPolicy(ChainPolicy):
    """Policy on a state vector that samples a chunk of H x A actions from noise in K transitions.

    A perceptron of state, noisy chunk and time makes the prediction, another one of the state alone the value. Actions
    are in [-1, 1]. Source: Diffusion Policy Policy Optimization, 2024, appendix E, arXiv:2409.00588 (perceptrons for
    state vectors).

    Args:
        chain: the kind of chain, whose network predicts neither a standard deviation nor an interval.
        observation_dims: D, length of the observation "state".
        action_dims: A, numbers of a control step.
        chunk: H, control steps of a decision.
        hidden: widths of the hidden layers of both perceptrons.
        value_head: predict the return of the state.
        timesteps_per_sample: denoising timesteps drawn for each demonstrated row, in one pass.
        path: folder that `save_pretrained` wrote; its sizes replace all others.
    """

    def __init__(
        self,
        chain: Chain,
        observation_dims: int | None = None,
        action_dims: int | None = None,
        chunk: int | None = None,
        hidden: Sequence[int] = (256, 256),
        value_head: bool = False,
        timesteps_per_sample: int = 8,
        path: str | None = None,
    ):
        super().__init__()
        if chain.predicts_std or chain.reads_end_time:
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a predicted standard deviation or the end of an interval, "
                "which this network does not have; take DDPM, DDIM, FlowSDE or CPS"
            )
        given = {"observation_dims": observation_dims, "action_dims": action_dims, "chunk": chunk}
        scope = {**given, "hidden": list(hidden), "prediction_type": chain.prediction_type}
        self.config = policy_folder.resolve(scope, path, sizes=("observation_dims", "action_dims", "chunk"))
        sizes = SimpleNamespace(**self.config)
        if missing := [name for name in given if not self.config[name]]:
            raise ValueError(f"policy.{missing[0]} must be at least 1 (or give policy.path)")
        if sizes.prediction_type != chain.prediction_type:
            raise ValueError(
                f"policy.path={path}: its network predicts the {sizes.prediction_type}, but policy.chain "
                f"{type(chain).__name__} needs one that predicts the {chain.prediction_type}"
            )
        self.chain, self.timesteps_per_sample, self.processor = chain, timesteps_per_sample, Processor()
        self.chunk, self.action_dims = sizes.chunk, sizes.action_dims
        self.encoder = ObservationEncoder(sizes.observation_dims, "state", None, 0)
        numbers = self.chunk * self.action_dims
        self.network = perceptron([self.encoder.width + numbers + TIME_FEATURES, *sizes.hidden], nn.SiLU)
        self.action_out_proj = nn.Linear(sizes.hidden[-1], numbers)
        self.value_head = None
        if value_head:
            body = perceptron([self.encoder.width, *sizes.hidden], nn.SiLU)
            self.value_head = nn.Sequential(body, nn.Linear(sizes.hidden[-1], 1))
        policy_folder.load(path, self)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return encode_single(raw, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        return self.encoder.encode_batch(raw, self)

    def observation_names(self) -> tuple[str, ...]:
        return ("state",)

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with another state vector or other actions."""
        self.encoder.check_space(observation_space)
        if getattr(action_space, "shape", None) != (self.chunk, self.action_dims):
            raise ValueError(
                f"the policy gives chunks of {self.chunk} x {self.action_dims} reals, but the simulator takes "
                f"{action_space}; set policy.chunk and policy.action_dims to fit"
            )

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        state = self.encoder(observation)
        values = None if self.value_head is None else self.value_head(state)[:, 0].float()
        return EncodedContext((state,), values)

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        # [M, D + H A + F] state, noisy chunk and time -> [M, H, A]
        rows = torch.cat([prefix[0], x.flatten(1), _time_features(time)], dim=1)
        return self.action_out_proj(self.network(rows)).float().view_as(x), None

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A] within [-1, 1]: a chain without transitions."""
        return torch.from_numpy(np.clip(check_chunk(output, self.chunk, self.action_dims), -1, 1))

    def contract(self) -> dict[str, Any]:
        return {**self.processor.contract(), "action.chunk": self.chunk, "action.dims": self.action_dims}

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)


def _time_features(time: Tensor) -> Tensor:
    """Sines and cosines [M, F] of times [M] in [0, 1], with periods from 2 down to 2 / 2^(F / 2 - 1)."""
    angles = time.float()[:, None] * torch.pi * 2 ** torch.arange(TIME_FEATURES // 2, device=time.device)
    return torch.cat([angles.sin(), angles.cos()], dim=1)
