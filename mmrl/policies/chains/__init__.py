"""How a continuous action is chosen: chains of Gaussian steps from noise to a chunk."""

from mmrl.policies.chains.base import Chain, Lesson, Step
from mmrl.policies.chains.diffusion import DDIM, DDPM
from mmrl.policies.chains.flow import CPS, FlowNoise, FlowODE, FlowSDE
from mmrl.policies.chains.gaussian import GaussianChunk
from mmrl.policies.chains.mean_flow import MeanFlow

__all__ = [
    "CPS",
    "DDIM",
    "DDPM",
    "Chain",
    "FlowNoise",
    "FlowODE",
    "FlowSDE",
    "GaussianChunk",
    "Lesson",
    "MeanFlow",
    "Step",
]
