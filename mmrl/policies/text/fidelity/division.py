"""Whether a sequence that processes divide has the scores of one that is not divided: measured before training."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.distributed.sequence_group import ALONE, SequenceGroup
from mmrl.policies.text.checks.division import refuse_division
from mmrl.policies.text.fidelity.check import ROUNDED, get_attention
from mmrl.policies.text.fidelity.measure import EXACT, PADDED, is_rounded, list_packings
from mmrl.policies.text.fidelity.probe import CHOICES, OWNER, build_observations, choose_length
from mmrl.policies.text.packing.plan import PackedBatch
from mmrl.policies.text.packing.prefix_attention import NAME
from mmrl.policies.text.packing.prefix_sharing import in_fp32


def check_division(policy: Any, group: SequenceGroup) -> None:
    """Compare the scores of a few rows with and without division, in every packing. Collective.

    Args:
        policy: with its weights gathered, on every process of the group.
        group: that divides its sequences.

    Raises:
        ValueError: the model keeps its own attention, its heads cannot be divided, or the scores differ.
    """
    model, kind = policy.model, policy.model.config.model_type
    if not policy.prefix_sharing.masks:
        raise ValueError(
            f"strategy.sequence_parallel={group.size} computes attention itself, and {kind} keeps its own "
            f"({get_attention(model)}); use strategy=ddp or strategy=fsdp2 without it"
        )
    refuse_division(model.config, "sdpa" if get_attention(model) == NAME else get_attention(model), group.size)
    rounded = is_rounded(model)
    difference = 0.0
    with torch.no_grad(), nullcontext() if rounded else in_fp32(policy):
        batch = build_rows(policy)
        for packing in (PADDED, *list_packings(policy).values()):
            whole, divided = (_score(policy, batch, packing, each) for each in (ALONE, group))
            difference = max(difference, float((whole - divided).abs().nan_to_num(torch.inf).max()))
    if difference > (ROUNDED if rounded else EXACT):
        raise ValueError(
            f"strategy.sequence_parallel={group.size}: sequences of {kind} that are divided over processes have other "
            f"log-probs or entropies, by {difference:.2g} nats: its layers look at tokens beside attention. Use "
            "strategy=ddp or strategy=fsdp2 without it"
        )


def build_rows(policy: Any) -> Batch:
    """Build a short and a long prompt with random completions, equal in all processes."""
    observations = build_observations(policy, choose_length(policy.model.config))
    prompts = policy.collate([observations[number] for number in OWNER])
    ordinary = torch.cat([observation["input_ids"] for observation in observations]).numpy()
    action = torch.from_numpy(np.random.default_rng(0).choice(ordinary, (len(OWNER), CHOICES)))
    columns = {f"obs.{name}": column for name, column in prompts.items()}
    columns |= {"action": action, "action_mask": torch.ones_like(action, dtype=torch.bool)}
    columns |= {"temperature": torch.ones(len(OWNER)), "prompt_id": torch.tensor(OWNER)}
    return Batch({name: column.to(policy.device) for name, column in columns.items()})


def _score(policy: Any, batch: Batch, packing: list[PackedBatch], group: SequenceGroup) -> Tensor:
    """Log-probs, entropies and `LogSurprise` [3, M] of the choices."""
    with group.divide():
        tokens = policy.extract_tokens(batch).without_common_choices()
        return torch.stack(policy.score_distributions(tokens, packing, batch)[1:])
