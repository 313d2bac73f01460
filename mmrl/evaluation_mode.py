"""Run a network in evaluation mode and restore the mode of each of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode inside the context, which disables dropout."""
    # modes are restored per module, since a frozen part may be in evaluation mode inside a training policy
    training = [module for module in network.modules() if module.training] if network.training else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
