"""Samplers of continuous actions: chains of Gaussian transitions from noise to a chunk."""

from mmrl.policies.vla.chains.base import Chain, DenoisingTarget, TransitionParams
from mmrl.policies.vla.chains.diffusion import DDIM, DDPM
from mmrl.policies.vla.chains.flow import CPS, FlowNoise, FlowODE, FlowSDE
from mmrl.policies.vla.chains.gaussian import GaussianChunk
from mmrl.policies.vla.chains.mean_flow import MeanFlow

__all__ = [
    "CPS",
    "DDIM",
    "DDPM",
    "Chain",
    "DenoisingTarget",
    "FlowNoise",
    "FlowODE",
    "FlowSDE",
    "GaussianChunk",
    "MeanFlow",
    "TransitionParams",
]
