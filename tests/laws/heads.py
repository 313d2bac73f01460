"""One small policy of every action head, and batches that it sampled or that an expert gave it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.base import Policy
from mmrl.policies.vla.chains import CPS, DDIM, DDPM, Chain, FlowNoise, FlowODE, FlowSDE, GaussianChunk, MeanFlow
from mmrl.policies.vla.openvla.policy import OpenVLAPolicy
from mmrl.policies.vla.openvla_oft.continuous import OpenVLAOFTDiffusionPolicy, OpenVLAOFTRegressionPolicy
from mmrl.policies.vla.openvla_oft.policy import OpenVLAOFTPolicy
from mmrl.policies.vla.pi0.policy import Pi0Policy
from mmrl.policies.vla.pi0_fast.policy import Pi0FastPolicy
from mmrl.policies.vla.pi05.policy import Pi05Policy
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.policies.vla.small.token import ActionTokenPolicy
from mmrl.policies.vla.smolvla.policy import SmolVLAPolicy
from tests.checkpoints import pi0, smolvla
from tests.policies.vla.checkpoints.openvla_checkpoint import openvla
from tests.policies.vla.checkpoints.openvla_oft_checkpoint import openvla_oft
from tests.policies.vla.checkpoints.pi_checkpoints import pi0_fast, pi05

SMALL = dict(hidden_size=32, layers=1, heads=2, intermediate_size=48, visual_tokens=2)
CHAINS: dict[str, Chain] = {
    "flow_sde": FlowSDE(),
    "flow_sde_all": FlowSDE(steps=3, single_stochastic_step=False),
    "flow_noise": FlowNoise(),
    "cps": CPS(),
    "cps_all": CPS(single_stochastic_step=False),
    "ddpm": DDPM(steps=5),
    "ddim": DDIM(),
    "ddpm_last": DDPM(steps=5, first_stochastic_step=3, max_std=0.2),
    "one_step": FlowNoise(steps=1),
    "mean_flow": MeanFlow(),
    "gaussian": GaussianChunk(),
    "pi0": FlowSDE(steps=3),
    "smolvla": FlowSDE(steps=3),
    "openvla_oft_l1": GaussianChunk(),
    "pi05": FlowSDE(steps=3),
}


DIFFUSION = DDIM(steps=5, levels=50)


@functools.cache
def pi0_folder() -> str:
    """A checkpoint whose state is larger than the chunk: 8 control steps of 8 dimensions."""
    return str(pi0(tempfile.mkdtemp(prefix="pi0")))


def pi0_policy(chain: Chain = CHAINS["pi0"], **given) -> Pi0Policy:
    """The checkpoint as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    return Pi0Policy(
        **{"path": pi0_folder(), "chain": chain, "freeze_context": False, "timesteps_per_sample": 8, **sizes, **given}
    )


@functools.cache
def smolvla_folder() -> str:
    """A checkpoint in lerobot's format: 8 control steps of 8 dimensions."""
    return str(smolvla(tempfile.mkdtemp(prefix="smolvla")))


def smolvla_policy(chain: Chain = CHAINS["smolvla"], **given) -> SmolVLAPolicy:
    """The checkpoint as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    given = {"path": smolvla_folder(), "chain": chain, "freeze_context": False, "timesteps_per_sample": 8} | given
    return SmolVLAPolicy(**{**sizes, **given})


@functools.cache
def openvla_folder() -> str:
    """A checkpoint in the published layout, with 32 action tokens and without statistics."""
    return str(openvla(tempfile.mkdtemp(prefix="openvla")))


def openvla_policy(**given) -> OpenVLAPolicy:
    """The checkpoint as a policy in the same environment as the others."""
    return OpenVLAPolicy(**{"path": openvla_folder(), "action_dims": 3, "chunk": 5, **given})


@functools.cache
def openvla_oft_folder() -> str:
    """The same checkpoint with a projector of proprioception and an L1 head."""
    return str(openvla_oft(tempfile.mkdtemp(prefix="openvla_oft")))


def openvla_oft_policy(**given) -> OpenVLAOFTPolicy:
    """The checkpoint with action tokens as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    return OpenVLAOFTPolicy(**{"path": openvla_oft_folder(), **sizes, **given})


def openvla_oft_l1_policy(chain: Chain = CHAINS["openvla_oft_l1"], **given) -> OpenVLAOFTRegressionPolicy:
    """The checkpoint with its L1 head as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    return OpenVLAOFTRegressionPolicy(**{"path": openvla_oft_folder(), "chain": chain, **sizes, **given})


def openvla_oft_diffusion_policy(chain: Chain = DIFFUSION, **given) -> OpenVLAOFTDiffusionPolicy:
    """The checkpoint with a diffusion head as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    return OpenVLAOFTDiffusionPolicy(**{"path": openvla_oft_diffusion_folder(), "chain": chain, **sizes, **given})


@functools.cache
def openvla_oft_diffusion_folder() -> str:
    """The same checkpoint with a projector of noisy actions and a diffusion head."""
    return str(openvla_oft(tempfile.mkdtemp(prefix="openvla_oft"), diffusion=True))


def pi05_folder() -> str:
    """A checkpoint in lerobot's format: 8 control steps of 8 dimensions."""
    return str(pi05(tempfile.mkdtemp(prefix="pi05")))


def pi05_policy(chain: Chain = CHAINS["pi05"], **given) -> Pi05Policy:
    """The checkpoint as a policy in the same environment as the others."""
    sizes = dict(action_dims=3, chunk=5, proprio_dims=13)
    given = {"path": pi05_folder(), "chain": chain, "freeze_context": False, "timesteps_per_sample": 8} | given
    return Pi05Policy(**{**sizes, **given})


@functools.cache
def pi0_fast_folder() -> str:
    """A checkpoint in lerobot's format: 8 control steps of the simulator's dimensions."""
    return str(pi0_fast(tempfile.mkdtemp(prefix="pi0_fast")))


def pi0_fast_policy(**given) -> Pi0FastPolicy:
    """The checkpoint as a policy in the same environment as the others."""
    return Pi0FastPolicy(**{"path": pi0_fast_folder(), **dict(action_dims=3, chunk=5, proprio_dims=13), **given})


LAYOUTS = {"tokens": "equal", "openvla_tokens": "openvla"}
TOKENS = {*LAYOUTS, "openvla", "openvla_oft"}
HEADS: dict[str, Callable[..., Policy]] = {
    **{
        name: lambda layout=layout, **given: ActionTokenPolicy(bins=16, layout=layout, **SMALL, **given)
        for name, layout in LAYOUTS.items()
    },
    **{
        name: lambda chain=chain, **given: ActionFlowPolicy(
            chain, expert_layers=1, timesteps_per_sample=2, **SMALL, **given
        )
        for name, chain in CHAINS.items()
    },
    "pi0": pi0_policy,
    "smolvla": smolvla_policy,
    "openvla": openvla_policy,
    "openvla_oft": openvla_oft_policy,
    "openvla_oft_l1": openvla_oft_l1_policy,
    "pi05": pi05_policy,
}
SIMILAR = ("openvla_oft", "openvla_oft_l1")
"""Heads that differ from another one, "openvla" and "gaussian", in what their own tests check."""
STILL = lambda **given: ActionFlowPolicy(FlowODE(), expert_layers=1, **SMALL, **given)  # noqa: E731


def build_policy(name: str, **given) -> Policy:
    """The head with weights that are the same at every call; its answers are large enough to matter."""
    torch.manual_seed(0)
    policy = (HEADS | {"flow_ode": STILL})[name](**given).eval()
    if isinstance(policy, ActionFlowPolicy) and policy.expert.log_std is not None:
        torch.nn.init.normal_(policy.expert.log_std.weight, std=0.2)
    return policy


def raws(count: int) -> list[dict]:
    """Observations with instructions of different lengths."""
    rng = np.random.default_rng(0)
    texts = ("reach the red cube", "touch blue", "go to the crimson thing")
    return [
        {
            "image": rng.integers(0, 256, (32, 32, 3), dtype=np.uint8),
            "proprio": rng.normal(size=13).astype(np.float32),
            "instruction": texts[i % 3],
        }
        for i in range(count)
    ]


def sampled(policy: Policy, count: int = 6, sampling: Sampling | None = None, first: int = 0) -> Batch:
    """Rows as they reach the objective after one decision in `count` contexts."""
    sampling = sampling or Sampling()
    observation = policy.collate([policy.encode(raw) for raw in raws(count)])
    action = policy.act(observation, sampling, Noise(range(first, first + count)))
    observation = {
        k: v for k, v in observation.items() if not (action.cached_features and k in policy.cached_inputs)
    } | action.cached_features
    return Batch(
        action=action.action,
        behavior_logprobs=action.behavior_logprobs,
        action_mask=action.action_mask,
        temperature=torch.full((count,), sampling.temperature),
        is_demo=torch.zeros(count, dtype=torch.bool),
        output=torch.from_numpy(np.stack(action.output)),
        **action.extra,
        **{f"obs.{name}": column for name, column in observation.items()},
    )


def demonstrated(policy: Policy, chunk: np.ndarray) -> Batch:
    """Rows [n] that an expert answered with chunks [n, H, A]."""
    given = raws(len(chunk))
    observation = policy.collate([policy.encode(raw) for raw in given])
    action = torch.stack([policy.encode_demonstration(raw, part) for raw, part in zip(given, chunk)])
    return Batch(
        action=action,
        behavior_logprobs=torch.zeros(action.shape[:2]),
        action_mask=torch.ones(action.shape[:2], dtype=torch.bool),
        temperature=torch.ones(len(chunk)),
        is_demo=torch.ones(len(chunk), dtype=torch.bool),
        row_seed=torch.arange(len(chunk)) + 7,
        **{f"obs.{name}": column for name, column in observation.items()},
    )
