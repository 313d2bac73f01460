"""SmolVLA as a policy for cloning and RL; it loads and saves lerobot's folders."""

from __future__ import annotations

from mmrl.policies.vla.pretrained.flow.policy import FlowVLAPolicy
from mmrl.policies.vla.smolvla.network import SmolVLANetwork
from mmrl.policies.vla.smolvla.reading import SmolVLAReading


class SmolVLAPolicy(FlowVLAPolicy):
    """SmolVLA: half of SmolVLM2's language model reads images, instruction and state, an expert denoises the chunk.

    Published weights: path=lerobot/smolvla_base, whose config.json names the vision-language model (tokenizer and
    sizes; `reader` replaces it). It was compared with lerobot's own computation at tiny sizes only. With
    `freeze_context` the state's projection learns beside the expert, as in lerobot.
    Source: Shukor et al., "SmolVLA", 2025, arXiv:2506.01844; weights and processors as lerobot 0.4 saves them. Differs:
    the loss is that of the simulator's dimensions and control steps, not of the padding.
    """

    network_class = SmolVLANetwork
    reading_class = SmolVLAReading
