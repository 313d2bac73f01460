"""Uni-MoE 2.0: a causal language model of transformers with layers of routed, null and shared experts."""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2Model
from transformers import initialization as init
from transformers.utils.output_capturing import OutputRecorder

from mmrl.methods.preferences.uni_moe.layer import ExpertLayer, RoutedExperts, TopPRouter


@strict
class UniMoeConfig(Qwen2Config):
    """Qwen2 whose feed-forward layers are mixtures of experts with dynamic routing.

    Args:
        num_experts: routed experts of a layer.
        num_null_experts: experts that output 0; they compete with the routed ones.
        num_shared_experts: experts of every token.
        moe_intermediate_size: width of a routed expert.
        shared_intermediate_size: width of a shared expert; of the paper an eighth of a routed one's.
        routing_top_p: P, the probability that the selected experts of a token have together at least.
    """

    model_type = "uni_moe"
    base_model_tp_plan = None  # of dense layers
    num_experts: int = 4
    num_null_experts: int = 1
    num_shared_experts: int = 1
    moe_intermediate_size: int = 1024
    shared_intermediate_size: int = 128
    routing_top_p: float | int = 0.7

    def __post_init__(self, **kwargs: Any) -> None:
        if min(self.num_experts, self.moe_intermediate_size, self.shared_intermediate_size) < 1:
            raise ValueError("num_experts, moe_intermediate_size and shared_intermediate_size must be at least 1")
        if min(self.num_null_experts, self.num_shared_experts) < 0:
            raise ValueError("num_null_experts and num_shared_experts must be at least 0")
        if not 0 < self.routing_top_p <= 1:
            raise ValueError(f"routing_top_p={self.routing_top_p} must be in (0, 1]")
        super().__post_init__(**kwargs)


class UniMoeModel(Qwen2Model):
    """The decoder layers of Uni-MoE 2.0, text alone: Qwen2's, with an `ExpertLayer` each."""

    config_class = UniMoeConfig
    _can_record_outputs = {
        **Qwen2Model._can_record_outputs,
        "router_logits": OutputRecorder(TopPRouter, index=0),
    }

    def __init__(self, config: UniMoeConfig):
        super().__init__(config)
        for layer in self.layers:
            layer.mlp = ExpertLayer(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RoutedExperts | TopPRouter):
            for weight in module.parameters(recurse=False):
                init.normal_(weight, mean=0.0, std=self.config.initializer_range)


class UniMoeForCausalLM(Qwen2ForCausalLM):
    """Causal language model of Uni-MoE 2.0, text alone.

    `AutoConfig` and `AutoModelForCausalLM` of transformers know it once this module is imported.
    """

    config_class = UniMoeConfig

    def __init__(self, config: UniMoeConfig):
        super().__init__(config)
        self.model = UniMoeModel(config)
        self.post_init()


AutoConfig.register(UniMoeConfig.model_type, UniMoeConfig, exist_ok=True)
AutoModelForCausalLM.register(UniMoeConfig, UniMoeForCausalLM, exist_ok=True)
