"""Real prompts of a run's task, and batches of them whose completions are as long as they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmrl.core.batch import Batch
from mmrl.policies.text.policy import TextPolicy

PROMPTS = 32
"""Prompts of a task that are read; further ones are taken to be as long."""
PROMPT_TOKENS = 512
"""Length of a prompt where there is no tokenizer to count with."""


@dataclass(frozen=True)
class Prompts:
    """Encoded prompts, and how their lengths were found."""

    observations: Sequence[dict[str, Any]]
    source: str

    @property
    def longest(self) -> int:
        return max(len(observation["input_ids"]) for observation in self.observations)

    @property
    def images(self) -> bool:
        return any(len(observation) > 1 for observation in self.observations)


def read_prompts(policy: TextPolicy, data: Any, tokens: int | None) -> Prompts:
    """Encode the first prompts of the training task, or make prompts of a given length.

    Args:
        policy: whose tokenizer or processor encodes them.
        data: a `RolloutData`.
        tokens: length of a prompt; None encodes those of the task.
    """
    if tokens is None and not getattr(policy, "tokenizer_missing", False):
        count = min(PROMPTS, len(data.task))
        raw = [data.rollout.build_observation(data.task[i], policy) for i in range(count)]
        return Prompts([policy.encode(each) for each in raw], f"the first {count} prompts of the task")
    length = PROMPT_TOKENS if tokens is None else tokens
    source = f"{length} tokens each, " + ("as given" if tokens is not None else "assumed: there is no tokenizer")
    observation = {"input_ids": torch.full((length,), policy.tokenizer.pad_token_id)}
    if getattr(policy, "wants_token_types", False):
        observation["mm_token_type_ids"] = torch.zeros(length, dtype=torch.long)
    return Prompts([observation], f"{source}, without images")


def collate_prompts(policy: TextPolicy, prompts: Prompts, count: int) -> dict[str, Any]:
    """Collate `count` prompts, the given ones in turn."""
    return dict(policy.collate([prompts.observations[i % len(prompts.observations)] for i in range(count)]))


def build_batch(policy: TextPolicy, prompts: Prompts, rows: int, of_prompt: int, choices: int) -> Batch:
    """Build a batch of rows with `choices` tokens each, `of_prompt` of every prompt, that share no first token."""
    number = torch.arange(rows) // of_prompt
    observations = [prompts.observations[i % len(prompts.observations)] for i in number.tolist()]
    columns = policy.collate(observations)
    action = (torch.arange(rows)[:, None] + torch.arange(choices)) % policy.model.config.get_text_config().vocab_size
    return Batch(
        action=action,
        action_mask=torch.ones(rows, choices, dtype=torch.bool),
        temperature=torch.ones(rows),
        prompt_id=number,
        **{f"obs.{name}": column for name, column in columns.items()},
    )
