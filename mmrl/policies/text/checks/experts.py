"""Check that a model has routers before settings for them are used, by its configuration alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from mmrl.policies.text import loading
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.routing.routing import format_dense, refuse_other_loss

OPTIONS = ("freeze_router", "router_replay", "output_router_logits")


def refuse_dense(init_args: Mapping[str, Any], auto_model: Any) -> None:
    """Raise if settings are for routers, and the type of the model has none; nothing is built.

    Args:
        init_args: of a text policy.
        auto_model: class of transformers that loads its models.

    Raises:
        ValueError: with the key and what to do.
    """
    options = [name for name in OPTIONS if init_args.get(name)]
    if not options:
        return
    path, architecture = init_args.get("path"), dict(init_args.get("config") or {})
    if path is not None:
        with loading.checkpoint_error(path):
            config = loading.read_config(path)
    elif "text_config" in architecture:
        return  # two halves, which are joined later
    else:
        config = build_config(architecture.pop("model_type", "qwen2"), architecture)
    model_class = auto_model._model_mapping.get(type(config), None)
    if not isinstance(model_class, type):
        return  # a file whose configuration is not known before it is loaded, or code of its own
    parts = vars(sys.modules[model_class.__module__]).values()
    recorders = (getattr(part, "_can_record_outputs", None) or {} for part in parts if isinstance(part, type))
    if not any("router_logits" in each for each in recorders):
        raise ValueError(format_dense(f"policy.{options[0]}"))
    if "output_router_logits" in options:
        refuse_other_loss(model_class, config.model_type)
