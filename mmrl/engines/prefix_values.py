"""Values of states in the middle of an answer, by the value head of a text policy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Observation
from mmrl.policies.base import Policy

_ANY_ID = 0  # the value before a token does not depend on the token


@torch.no_grad()
def predict_prefix_values(
    policy: Policy,
    observations: Sequence[Observation],  # N, encoded
    prefixes: Sequence[Tensor],  # N ids [t] that stand after the observation
    prompt_ids: Sequence[int],  # N, the same for equal observations
    rows: int = 256,
) -> list[float]:
    """Predict the return from the state after each prefix, as the policy's values are before its next token.

    Raises:
        ValueError: the policy has no value head.
    """
    values: list[float] = []
    for start in range(0, len(prefixes), rows):
        part, ids = observations[start : start + rows], prefixes[start : start + rows]
        lengths = torch.tensor([len(prefix) for prefix in ids])
        mask = torch.arange(int(lengths.max()) + 1) <= lengths[:, None]  # [n, T] with the next token
        batch = Batch(
            action=pad_stack([torch.cat([prefix, prefix.new_full((1,), _ANY_ID)]) for prefix in ids]),
            action_mask=mask,
            behavior_logprobs=torch.zeros(mask.shape),
            temperature=torch.ones(len(ids)),
            prompt_id=torch.tensor(prompt_ids[start : start + rows]),
            prompt_length=torch.tensor([len(observation["input_ids"]) for observation in part]),
        )
        batch |= {f"obs.{name}": column for name, column in policy.collate(part).items()}
        with evaluation_mode(policy):
            out = policy(Batch({name: column.to(policy.device) for name, column in batch.items()}))
        if out.values is None:
            raise ValueError("the search needs values and the policy predicts none; set model.policy.value_head=true")
        values += out.values.gather(1, lengths[:, None].to(out.values.device))[:, 0].float().tolist()
    return values
