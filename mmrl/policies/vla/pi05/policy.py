"""pi0.5 as a policy for cloning and RL; it loads and saves lerobot's folders."""

from __future__ import annotations

from mmrl.policies.vla.pi05.network import Pi05Network
from mmrl.policies.vla.pi05.reading import Pi05Reading
from mmrl.policies.vla.pretrained.flow.policy import FlowVLAPolicy


class Pi05Policy(FlowVLAPolicy):
    """pi0.5: PaliGemma reads images and a prompt with the discretised state, an expert with adaptive norms denoises.

    Published weights: path=lerobot/pi05_base; the tokenizer is that of google/paligemma-3b-pt-224, which
    policy_preprocessor.json names (`reader` replaces it). It was compared with lerobot's own computation at tiny sizes
    only. Statistics are quantiles, and actions beyond them are not clipped.
    Source: Physical Intelligence, "pi0.5", 2025, arXiv:2504.16054; weights and processors as lerobot 0.6 saves them.
    Differs: the flow matching stage alone, without subtask prediction; the loss is that of the simulator's dimensions
    and control steps, not of the padding. LeRobot 0.4 filled the state up with zeros to max_state_dim before it wrote
    the prompt; 0.6 and openpi do not, nor does this policy.
    """

    network_class = Pi05Network
    reading_class = Pi05Reading
