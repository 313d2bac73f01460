"""Whether prompts and decodes suit a policy, looked at before the first step."""

from __future__ import annotations

from typing import Any

from mmrl.errors import ConfigError
from mmrl.types import Prompt, Task

LOOKED_AT = 2000
"""Prompts of a split, evenly spread, of which the longest are measured. The policy refuses others as it meets them."""
_MEASURED = 4


def check_prompts(policy: Any, data: Any) -> None:
    """Refuse decodes that the policy does not have, and prompts that leave no room for an answer.

    Args:
        policy: with its weights; `check_sampling` refuses a decode, `limit` is its context length or None.
        data: the data module.
    """
    if policy is None or getattr(data, "sampling", None) is None:
        return  # a learner or a data module of another kind
    held_out = getattr(data, "evaluation", None)
    decodes = {"data.sampling": data.sampling}
    if held_out is not None:
        decodes |= {f"data.evaluation.sampling.{name}": part for name, part in held_out.sampling.items()}
    for key, sampling in decodes.items():
        try:
            policy.check_sampling(sampling)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error
    if policy.limit is None:
        return
    _check_split(policy, data.task, "data.sampling", data.sampling.max_tokens)
    for name, sampling in {} if held_out is None else held_out.sampling.items():
        _check_split(policy, data.task.on(held_out.split), f"data.evaluation.sampling.{name}", sampling.max_tokens)


def _check_split(policy: Any, task: Task, key: str, asked: int) -> None:
    step = max(len(task) // LOOKED_AT, 1)
    longest = sorted(((_characters(task[i]), i) for i in range(0, len(task), step)), reverse=True)[:_MEASURED]
    for characters, index in longest:
        if not characters:
            return
        prompt = task[index]
        length = len(policy.encode(prompt.observation)["input_ids"])
        if length + asked > policy.limit:
            raise ConfigError(
                f"{prompt.key}: a prompt of {length} tokens and {key}.max_tokens={asked} are more than the "
                f"{policy.limit} positions of the model (max_position_embeddings); shorten the prompt or lower "
                "max_tokens"
            )


def _characters(prompt: Prompt) -> int:
    return sum(len(str(message.get("content", ""))) for message in prompt.messages)
