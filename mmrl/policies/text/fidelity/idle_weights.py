"""Weights that no gradient reaches in every batch, which DDP has to look for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmrl.core.evaluation_mode import evaluation_mode


def has_idle_weights(policy: Any) -> bool:
    """Whether no gradient reaches some trainable weights of a policy's model in a row of one token.

    Sparse attention chooses tokens by an indexer without a gradient, compressed attention compresses long rows alone,
    few tokens leave experts out, and an image encoder reads no text.
    """
    if policy.optional_modules():
        return True
    model = policy.model
    ids = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        with evaluation_mode(model), torch.enable_grad():
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    except Exception:  # the code of an architecture may raise anything; looking for idle weights is never wrong
        return True
    reached = list_reached(logits)
    return any(weight.requires_grad and id(weight) not in reached for weight in model.parameters())


def list_reached(output: Tensor) -> set[int]:
    """Return the ids of the weights in the graph of an output."""
    reached, known, nodes = set(), set(), [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in known:
            continue
        known.add(node)
        if (weight := getattr(node, "variable", None)) is not None:
            reached.add(id(weight))
        nodes += [following for following, _ in node.next_functions]
    return reached
