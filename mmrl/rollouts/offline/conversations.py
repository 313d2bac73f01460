"""Rollout of whole conversations, for supervised fine-tuning on all turns of the assistant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.core.types import Completion, Context, Task, assistant_message
from mmrl.rollouts.offline.demonstrations import Demonstrations, demonstrated_choices

_IMAGES = (
    "rollout=conversations: a prompt brings images or videos, and conversations are text; use rollout=demonstrations"
)


class Conversations(Demonstrations):
    """Whole conversations as demonstrations: one row each, learned on the tokens of all turns of the assistant.

    The messages of the prompt and the task's answer are written by the policy's chat template; the tokens of other
    roles, and those that the template writes around turns, have action_mask False. For text policies.
    """

    def check_task(self, task: Task) -> None:
        for prompt in task.prompts_to_check():
            if prompt.images or prompt.videos:
                raise ValueError(f"{prompt.place or prompt.key}: {_IMAGES}")

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        if "messages" not in raw:
            raise ValueError(
                f"rollout=conversations: prompts have no messages, only {sorted(raw)}; use rollout=demonstrations"
            )
        if raw.get("images") or raw.get("videos"):
            raise ValueError(_IMAGES)
        messages = [*raw["messages"], assistant_message(output)]
        ids, mask = ctx.policy.encode_conversation(messages, raw.get("tools"))
        first = int(mask.int().argmax())
        return demonstrated_choices(ids[first:], {"input_ids": ids[:first]}, output, mask[first:])
