"""Refuse networks whose weights are in shards where processes call them a different number of times."""

from __future__ import annotations

from torch import nn


def refuse_sharded(model: nn.Module, part: str) -> None:
    """Raise NotImplementedError if weights of a model are shards at this moment.

    A call of such a network waits for all processes. Weights that are gathered, as those of the policy are while
    engine=local samples, are none.

    Args:
        model: whose forward pass is about to be called.
        part: that calls it, as it stands in the configuration.
    """
    if any(hasattr(parameter, "to_local") for parameter in model.parameters()):
        raise NotImplementedError(
            f"{part} calls {type(model).__name__} a different number of times on each process, and its weights are "
            "sharded here; use strategy=ddp, or engine=local if the model is the policy itself"
        )
