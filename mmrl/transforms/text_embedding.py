"""Embeddings of texts: mean hidden states of a text policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Prompt
from mmrl.distributed.whole_weights import refuse_sharded

EMPTY = {"messages": ({"role": "user", "content": " "},), "images": ()}
"""The prompt after which texts are read."""


def prompt_text(prompt: Prompt) -> str:
    """The text of all messages of a prompt, without its images."""
    contents = [message["content"] for message in prompt.messages]
    parts = [[{"text": content}] if isinstance(content, str) else content for content in contents]
    return "\n".join("".join(part.get("text", "") for part in content) for content in parts)


@torch.no_grad()
def embed_texts(texts: Sequence[str], model: Any, rows: int = 64) -> Tensor:
    """Embeddings [n, L * D] of texts: the mean of the hidden states after each of their tokens, layers side by side.

    An empty text has the state before its first token.

    Args:
        texts: n of them.
        model: a text policy with `hidden_layers`.
        rows: texts per forward pass.
    """
    refuse_sharded(model, "data.transforms (embedding of a text)")
    if not getattr(model, "hidden_layers", ()):
        raise ValueError(
            f"embedding of a text: {type(model).__name__} gives no hidden states; set its hidden_layers, for the "
            "reference model.policy.hidden_layers, for example to [1.0]"
        )
    observation, out = model.encode(EMPTY), [torch.zeros(0, len(model.hidden_layers) * model.hidden_size)]
    with evaluation_mode(model):
        for start in range(0, len(texts), rows):
            ids = [model.tokenize(text) for text in texts[start : start + rows]]
            batch = _batch(ids, observation, model)
            output = model(Batch({name: column.to(model.device) for name, column in batch.items()}))
            mask = batch["action_mask"].clone()  # of the states before each id
            mask[:, 0] = mask.sum(1) == 1
            hidden = output.extra["hidden_states"].float().cpu().flatten(2)
            out.append((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
    return torch.cat(out)


def _batch(ids: Sequence[Tensor], observation: dict[str, Tensor], model: Any) -> Batch:
    """Rows with one id more than each text, so that there is a state after its last one."""
    longer = [torch.cat([row, row.new_zeros(1)]) for row in ids]
    columns = model.collate([observation] * len(ids))
    return Batch(
        {f"obs.{name}": column for name, column in columns.items()},
        action=pad_stack(longer),
        action_mask=pad_stack([torch.ones(len(row), dtype=torch.bool) for row in longer], False),
        prompt_id=torch.zeros(len(ids), dtype=torch.long),
        temperature=torch.ones(len(ids)),
    )
