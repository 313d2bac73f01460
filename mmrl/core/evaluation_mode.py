"""Run a network in evaluation mode, or sample what is not learned from, and restore the modes afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from mmrl.policies.base import Policy


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


@contextmanager
def no_learning(policy: Policy) -> Iterator[None]:
    """Let a policy keep nothing for the learn step inside the context, as in held-out evaluation."""
    before, policy.learns_from_rows = policy.learns_from_rows, False
    try:
        yield
    finally:
        policy.learns_from_rows = before
