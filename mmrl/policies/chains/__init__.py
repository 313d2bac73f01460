"""Samplers of continuous actions: chains of Gaussian transitions from noise to a chunk."""

from mmrl.policies.chains.base import Chain, DenoisingTarget, TransitionParams
from mmrl.policies.chains.diffusion import DDIM, DDPM
from mmrl.policies.chains.flow import CPS, FlowNoise, FlowODE, FlowSDE
from mmrl.policies.chains.gaussian import GaussianChunk
from mmrl.policies.chains.mean_flow import MeanFlow

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
