"""Frozen models that rollouts and transforms sample from beside the policy: who asks for which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SamplesModels(Protocol):
    """A rollout or an episode transform whose requests name frozen models."""

    def sampled_models(self) -> frozenset[str]:
        """Return the names that its requests have, as in `model.frozen_models`."""


def list_models(parts: Iterable[Any]) -> frozenset[str]:
    """Return the names of frozen models that parts sample from; those of a rollout inside another one count."""
    names: set[str] = set()
    for part in parts:
        while part is not None:
            names |= part.sampled_models() if isinstance(part, SamplesModels) else set()
            part = getattr(part, "rollout", None)
    return frozenset(names)
