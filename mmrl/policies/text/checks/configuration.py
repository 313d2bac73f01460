"""Configurations of transformers from policy.config: unknown names, wrong values and absurd sizes are refused."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import os
import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

KEY = "policy.config"
_ROTARY = {"rope_theta", "rope_scaling", "partial_rotary_factor", "rope_parameters"}
"""Names that transformers turns into rope_parameters."""
_ELSEWHERE = {
    "dtype": "policy.dtype",
    "torch_dtype": "policy.dtype",
    "attn_implementation": "policy.attention",
    "quantization_config": "policy.quantization",
    "auto_map": None,
    "output_attentions": None,
    "output_hidden_states": None,
    "return_dict": None,
}
"""Names of transformers that another option decides; None for those that no option has."""


def build_config(kind: Any, given: Mapping[str, Any], key: str = KEY, **more: Any) -> PreTrainedConfig:
    """Build the configuration of an architecture.

    Args:
        kind: the architecture's `model_type`.
        given: values by their names in config.json.
        key: of the values, for messages.
        more: values that the program adds.

    Raises:
        ValueError: the architecture, a name or a value cannot be; the message names the key.
    """
    if kind not in CONFIG_MAPPING:
        near = difflib.get_close_matches(str(kind), list(CONFIG_MAPPING), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; take a name of transformers, such as qwen2"
        raise ValueError(f"{key}.model_type={kind!r} is no architecture of transformers{hint}")
    check_names(CONFIG_MAPPING[kind], given, key)
    for name in (name for name in given if name in more and not isinstance(given[name], Mapping)):
        if given[name] != more[name]:
            raise ValueError(f"{key}.{name}={given[name]!r}: it is {more[name]!r}, of the tokenizer; leave it out")
    try:
        config = CONFIG_MAPPING[kind](**{**given, **more})
    except Exception as error:  # transformers' own validation has many kinds of errors
        reason = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
        raise ValueError(f"{key}: {kind} cannot have these values: {reason[:300]}; change them") from error
    check_size(config, key)
    return config


def _is_read(kind: type, name: str) -> bool:
    """Whether a model's code reads a name that its configuration does not declare, as in some versions."""
    try:
        module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
        read = rf"\bconfig\.{name}\b|\bconfig, \"{name}\""
        return name[:1].isalpha() and re.search(read, inspect.getsource(module)) is not None
    except (ImportError, OSError):
        return False


def check_names(kind: type, given: Mapping[str, Any], key: str = KEY) -> None:
    """Refuse names that a configuration does not have, which transformers keeps without using them.

    Args:
        kind: class of the configuration.
        given: values by name; those of a part, such as text_config, are checked too.
        key: of the values, for messages.
    """
    names = _names_of(kind)
    parts: Mapping[str, Any] = getattr(kind, "sub_configs", None) or {}
    for name, value in given.items():
        if name in _ELSEWHERE:
            instead = _ELSEWHERE[name]
            raise ValueError(
                f"{key}.{name}: {f'set {instead}' if instead else 'no policy has this option'}; leave it out"
            )
        if name not in names and not _is_read(kind, name):
            near = difflib.get_close_matches(name, sorted(names), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "leave it out"
            raise ValueError(f"{key}: {getattr(kind, 'model_type', kind.__name__)} has no {name!r}; {hint}")
        if name in parts and isinstance(value, Mapping):
            model_type = value.get("model_type")
            part = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else parts[name]
            if issubclass(part, PreTrainedConfig):
                check_names(part, {n: v for n, v in value.items() if n != "model_type"}, f"{key}.{name}")


def check_size(config: PreTrainedConfig, key: str = KEY) -> None:
    """Refuse a model whose weights exceed the machine's memory, by the sizes of its layers.

    A model on the meta device, which has no weights, may have any size.
    """
    if torch.get_default_device().type == "meta":
        return
    text = config.get_text_config()
    sizes = [
        getattr(text, name, None) for name in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    ]
    if not all(isinstance(size, int) for size in sizes):
        return
    hidden, layers, inner, vocabulary = sizes
    count = layers * hidden * (2 * hidden + 2 * inner) + vocabulary * hidden
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * count > memory:
        raise ValueError(
            f"{key}: hidden_size={hidden}, num_hidden_layers={layers} and intermediate_size={inner} are at least "
            f"{4 * count / 2**30:,.0f} GiB of weights, and this machine has {memory / 2**30:,.0f} GiB; lower them"
        )


def _names_of(kind: type) -> set[str]:
    names = {"model_type"}
    for base in kind.__mro__:
        if dataclasses.is_dataclass(base):
            names |= {field.name for field in dataclasses.fields(base)}
        if "__init__" in vars(base) and base is not object:
            names |= set(inspect.signature(base.__init__).parameters)  # type: ignore[misc]
    names |= set(getattr(kind, "attribute_map", None) or {}) | set(getattr(kind, "sub_configs", None) or {})
    return (names | _ROTARY if "rope_parameters" in names else names) - {"self", "args", "kwargs"}
