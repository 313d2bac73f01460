"""Padding between the simulator's actions and those of a flow VLA's checkpoint."""

from __future__ import annotations

from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.pretrained.flow.network import Sizes


def action_padding(sizes: Sizes, action_dims: int, chunk: int, proprio_dims: int) -> ActionPadding | None:
    """Return the padding between the simulator's chunk and the model's state; None if they are equal.

    Raises:
        ValueError: the simulator needs more than the checkpoint has.
    """
    for word, size, most, name in (
        ("action_dims", action_dims, sizes.action_dims, "max_action_dim"),
        ("chunk", chunk, sizes.horizon, "chunk_size (policy.horizon)"),
        ("proprio_dims", proprio_dims, sizes.state_dims, "max_state_dim"),
    ):
        if not 1 <= size <= most:
            raise ValueError(f"policy.{word}={size}, but the checkpoint's {name} is {most}")
    padding = ActionPadding(chunk, action_dims, sizes.horizon, sizes.action_dims)
    return padding if padding.entries_per_step else None
