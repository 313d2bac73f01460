"""pi0 of transformers as a policy for cloning and RL; it is saved in transformers' format."""

from __future__ import annotations

from mmrl.policies.vla.pi0.network import Pi0Network
from mmrl.policies.vla.pi0.reading import Pi0Reading
from mmrl.policies.vla.pretrained.flow.policy import FlowVLAPolicy


class Pi0Policy(FlowVLAPolicy):
    """`PI0ForConditionalGeneration`: camera images and an instruction are read once, an expert denoises the chunk.

    Published weights: path=lerobot/pi0_base reader=google/paligemma2-3b-mix-224 (3.2 B parameters that are read, 0.31 B
    of them the expert; chunks of 50, 32 dimensions; transformers converts the names). It was tested at tiny sizes
    only. By arithmetic, with three cameras (816 tokens) and bfloat16: keys and values of a context take 15 MB a row,
    held twice while the chain is sampled, so lower engine.max_rows; reading it costs about 4 TFLOP, a transition 0.03.
    keep_contexts stores them until the iteration ends, in host memory.
    Source: Black et al., "pi0", 2024, arXiv:2410.24164; frozen context as in pi_RL, 2025, section 5, arXiv:2510.25889.
    Weights and statistics as lerobot 0.6 saves them are read too; its folders have no image processor, so they need
    `reader`, which resizes images of other sizes than 224 by another filter than lerobot.
    Differs: the critic reads the context and proprioception, not the expert's features.
    """

    network_class = Pi0Network
    reading_class = Pi0Reading
