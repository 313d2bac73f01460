"""Requests to a served policy: check a decoded message, and take the seed and the decode out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from mmrl.core.types import Sampling
from mmrl.policies.remote.wire import SAMPLING, SEED, WireError

_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p"), (int, float)),
    **dict.fromkeys(("top_k", "max_tokens"), (int,)),
    "decode": (str,),
}


def read_request(
    message: Any, default: Sampling, check: Callable[[Sampling], None]
) -> tuple[dict[str, Any], int | None, Sampling]:
    """Return the raw observation, the seed and the decode of a decoded message.

    Args:
        message: as `wire.unpack` returns it.
        default: the decode of a message that names none.
        check: refuses a decode that the policy does not have, by a ValueError.

    Raises:
        ValueError: the message is no map of observations, or its seed or decode cannot be used.
    """
    if not isinstance(message, dict) or not all(isinstance(name, str) for name in message):
        raise WireError("a request is a map of observations by name")
    observation = {name: value for name, value in message.items() if name not in (SEED, SAMPLING)}
    for name, value in observation.items():
        if not isinstance(value, np.ndarray | np.generic | str | int | float | bool | list | dict):
            raise WireError(
                f"observation {name!r:.60} is of type {type(value).__name__}; give an array, number or text"
            )
    seed = message.get(SEED)
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
        raise WireError(f"{SEED} must be a whole number below 2**64")
    sampling = default
    if message.get(SAMPLING) is not None:
        sampling = read_sampling(message[SAMPLING])
        check(sampling)
    return observation, seed, sampling


def read_sampling(given: Any) -> Sampling:
    """Build the sampling parameters of a request from plain values.

    Raises:
        ValueError: a name or a type is unknown, or a value is out of range.
    """
    text = {"annealing", "regex", "json_schema"}  # of policies that write
    names = {field.name for field in fields(Sampling)} - text
    if not isinstance(given, Mapping) or not set(given) <= names:
        raise WireError(f"{SAMPLING} must be a map with some of {sorted(names)}")
    for name, types in _TYPES.items():
        if name in given and (not isinstance(given[name], types) or isinstance(given[name], bool)):
            raise WireError(f"{SAMPLING}: {name} is of type {type(given[name]).__name__}")
    stop = given.get("stop", ())
    if not isinstance(stop, list | tuple) or not all(isinstance(text, str) for text in stop):
        raise WireError(f"{SAMPLING}: stop must be a list of texts")
    if given.get("decode", "sample") not in ("sample", "argmax", "mean"):
        raise WireError(f"{SAMPLING}: decode must be sample, argmax or mean")
    return Sampling(**{**given, "stop": tuple(stop)})
