"""Check that processes can divide the sequences of a model by its attention heads, by its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.policies.text import loading
from mmrl.policies.text.architecture import list_layer_types
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.packing.prefix_sharing import MASKED_TYPES


def refuse_settings(init_args: Mapping[str, Any], processes: int) -> None:
    """Raise if so many processes cannot divide the sequences of a text policy; nothing is built.

    Args:
        init_args: of the policy.
        processes: that divide a sequence.

    Raises:
        ValueError: with the key, the reason and what to do.
    """
    for option, what in (("router_replay", "records"), ("output_router_logits", "counts")):
        if init_args.get(option):
            raise ValueError(
                f"strategy.sequence_parallel={processes} divides the tokens whose experts policy.{option}=true {what}; "
                "use one of them"
            )
    path, architecture = init_args.get("path"), dict(init_args.get("config") or {})
    if path is not None:
        with loading.checkpoint_error(path):
            config = loading.read_config(path)
    else:
        config = build_config(architecture.pop("model_type", "qwen2"), architecture)
    refuse_division(config, init_args.get("attention", "sdpa"), processes)


def refuse_division(config: Any, attention: str, processes: int) -> None:
    """Raise if so many processes cannot divide the heads of a model, or if a layer is no attention that we compute.

    Args:
        config: of the transformers model; None where it is not known before the weights are loaded.
        attention: implementation that the configuration names.
        processes: that divide a sequence.

    Raises:
        ValueError: with the key, the reason and what to do.
    """
    key = f"strategy.sequence_parallel={processes}"
    remedy = "use strategy=ddp or strategy=fsdp2 without it"
    if attention != "sdpa":
        raise ValueError(
            f"{key} computes attention itself, and policy.attention={attention!r} keeps that of the model; use "
            "policy.attention=sdpa, or leave sequence_parallel out"
        )
    if config is None:
        return
    if others := sorted(list_layer_types(config) - MASKED_TYPES):
        raise ValueError(
            f"{key} divides full and sliding attention by heads, and {config.model_type} has layers of type "
            f"{', '.join(others)}; {remedy}"
        )
    heads = getattr(config.get_text_config(decoder=True), "num_attention_heads", None)
    if not isinstance(heads, int) or heads % processes:
        raise ValueError(
            f"{key} does not divide the {heads} attention heads of {config.model_type}; use a divisor of them"
        )
