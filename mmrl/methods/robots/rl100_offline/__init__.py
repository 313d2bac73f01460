"""RL-100's offline stage: the denoising chain learns from recorded states, and a model gates every update.

RL-100: Performant Robotic Manipulation with Real-World Reinforcement Learning, 2025, arXiv:2510.14830.

- critics of IQL and a transition model on recorded chunks: conf/phases/rl100_critics.yaml, `TransitionModel`
- A = Q - V of chains that the policy samples in recorded states: `RecordedStates`, `DecisionAdvantage`
- AM-Q, J(pi) = mean over model rollouts of sum_{t<H} Q(s_t, a_t), accepted if J_new - J_old >= delta: `ModelGate`
- the objective, PPO over all transitions of the chain: `mmrl.objectives.policy_chain.ChainSurrogate`
"""

from mmrl.methods.robots.rl100_offline.gate import ModelGate, accepts, estimate_return
from mmrl.methods.robots.rl100_offline.models import OfflineModels, TransitionLoss, TransitionModel, TransitionOutput
from mmrl.methods.robots.rl100_offline.states import DecisionAdvantage, RecordedStates

__all__ = [
    "DecisionAdvantage",
    "ModelGate",
    "OfflineModels",
    "RecordedStates",
    "TransitionLoss",
    "TransitionModel",
    "TransitionOutput",
    "accepts",
    "estimate_return",
]
