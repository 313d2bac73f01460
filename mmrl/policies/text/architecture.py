"""Check that a text policy supports a transformers architecture, and choose its attention implementation."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from mmrl.policies.text.cache import ATTENTION
from mmrl.policies.text.checks.rotary import check_rotary

log = logging.getLogger(__name__)


def list_layer_types(config: Any) -> set[str]:
    """List the layer types of a language model; empty where its layers are all of one kind without a name.

    Args:
        config: of the transformers model.
    """
    return set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())


def list_unknown_types(config: Any) -> list[str]:
    """List the layer types outside of `ATTENTION`: no shortcut is taken for them, and they are always measured."""
    return sorted(list_layer_types(config) - ATTENTION)


def build_model(make: Callable[[str], Any], attention: str) -> Any:
    """Build a model with this attention; "eager" replaces "sdpa" if the architecture does not support it.

    torch's scaled dot-product attention has no capped scores, sinks and biases by distance.

    Args:
        make: builds the model with a named attention implementation.
    """
    try:
        return check_rotary(make(attention))
    except ValueError as error:
        if attention != "sdpa" or "scaled_dot_product_attention" not in str(error):
            raise
    model = make("eager")
    log.warning(
        "%s does not support policy.attention=sdpa: it runs with attention=eager, which is slower and keeps the scores "
        "of all pairs of tokens",
        type(model).__name__,
    )
    return check_rotary(model)


SIZES = ("hidden_size", "num_hidden_layers", "vocab_size")
"""Numbers that the configuration of a stack of layers has."""
ELSE = "choose a type that docs/models.md says is exact, such as qwen2, qwen3_5, llama, gemma3 or mixtral"


def refuse_other_tasks(config: Any, auto_model: Any) -> None:
    """Raise for architectures that do not continue a sequence of tokens, by their configuration alone.

    An encoder-decoder reads the prompt with one network and writes with another. A class without `generate` writes no
    tokens: it classifies, or moves a robot.

    Args:
        config: of transformers.
        auto_model: its class that would load the checkpoint.
    """
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        why = "it is an encoder-decoder, whose prompt goes to another network than its completion"
    else:
        classes = getattr(auto_model, "_model_mapping", None)  # a class of one model has no mapping
        if classes is not None and type(config) not in classes and not getattr(config, "auto_map", None):
            raise ValueError(
                f"policy: {kind} has no class in transformers' {auto_model.__name__}, so it cannot be loaded alone; "
                "load a whole image-text checkpoint with policy=vlm and a text model with policy=text, or " + ELSE
            )
        cls = None if classes is None else classes.get(type(config), None)
        if cls is None or cls.can_generate():
            return
        why = f"its class {cls.__name__} writes no tokens"
    raise ValueError(f"policy: {kind} is no policy that writes text: {why}; {ELSE}")


def refuse_other_states(model: Any) -> None:
    """Raise for models that are no stack of layers, or that keep a state elsewhere than in a cache of layers.

    Completions of a prompt share its cache, and finished rows leave the batch: the layers' keys and values, and their
    summaries of all earlier tokens, are copied and selected by rows for that. Whether what they compute then is what
    transformers computes is measured (`mmrl.policies.text.fidelity`).
    """
    config = model.config.get_text_config(decoder=True)
    if missing := [name for name in SIZES if not isinstance(getattr(config, name, None), int)]:
        raise ValueError(
            f"policy: the configuration of {config.model_type} has no {missing[0]}, so it is no stack of layers; {ELSE}"
        )
    if getattr(model, "_is_stateful", False) and not list_layer_types(config):
        raise ValueError(
            f"policy: {config.model_type} keeps its state outside of the caches of transformers, and sampling several "
            f"completions of a prompt has to copy it; {ELSE}"
        )


SELECTIONS = (("index_topk",), ("index_topk_blocks", "index_block_size"), ("indexer_budget",), ("keep_window_size",))
"""Names of settings whose product is the number of tokens that a token attends to at most, chosen by their scores."""


def find_switch(config: Any) -> tuple[int, str] | None:
    """Find the tokens of a row from which on it is not scored as it was sampled, and say why; None for models without.

    Such models compute the rotary positions of a whole batch otherwise, or each token attends to those with the largest
    scores alone: rounding, which differs between sampling and learning, then changes which tokens are read.
    """
    settings = getattr(config, "rope_parameters", None) or {}
    kinds = [settings, *(value for value in settings.values() if isinstance(value, dict))]  # one per layer type
    positions = [
        kind.get("original_max_position_embeddings") or config.max_position_embeddings
        for kind in kinds
        if kind.get("rope_type") in ("longrope", "dynamic")
    ]
    sizes = [[getattr(config, name, None) for name in names] for names in SELECTIONS]
    selected = [math.prod(numbers) for numbers in sizes if all(isinstance(number, int) for number in numbers)]
    lengths = [
        *(
            (
                n,
                f"has other rotary positions for all rows of a batch whose longest has more than {n} tokens (rope_type "
                "longrope or dynamic), so that rows would change each other",
            )
            for n in positions
        ),
        *(
            (
                n,
                f"selects the tokens that are read in rows of more than {n} tokens by scores whose rounding differs "
                "between sampling and learning",
            )
            for n in selected
            if n > 0
        ),
    ]
    return min(lengths, default=None)
