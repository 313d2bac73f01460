"""Refuse a run that plays where the task has the rewards of a log alone."""

from __future__ import annotations

from typing import Any

from mmrl.core.errors import ConfigError


def check_logged_rewards(data: Any) -> None:
    """Refuse a rollout that does not read the episodes of a task whose rewards are logged.

    Args:
        data: a data module.

    Raises:
        ConfigError: with the rollout, and the argument to add.
    """
    task, rollout = getattr(data, "task", None), getattr(data, "rollout", None)
    if getattr(task, "logged_rewards", False) and not getattr(rollout, "imitates_answers", False):
        raise ConfigError(
            f"task={task.name} has the rewards of its own conversations alone, and {type(rollout).__name__} plays "
            "others; set rollout=logged_conversations"
        )
