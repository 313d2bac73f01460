"""Refuse a run that imitates or compares answers where its task has none: rows without them, and environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config.compose import compose
from mmrl.config.dry_calls.stages import read_stages
from mmrl.config.signatures import import_class
from mmrl.core.errors import ConfigError
from mmrl.core.text_environment import EnvironmentTask
from mmrl.core.types import Task
from mmrl.rewards.base import NamedScores


def check_answers(data: Any, reward: Any, config: Mapping[str, Any], scores: frozenset[str] | None) -> None:
    """Refuse rows without an answer where a rollout, a warm start, a reward or an evaluator needs one.

    The episodes of a text environment have no answer: a warm start that imitates answers is refused there.

    Args:
        data: a data module.
        reward: one like the data's; None where it is not known.
        config: of the run, its parts as {class_path, init_args}.
        scores: names of those that the reward gives, as `check_data` returns them; None where they are unknown.

    Raises:
        ConfigError: with the row, what needs its answer, and the arguments to add.
    """
    task = getattr(data, "task", None)
    if isinstance(task, EnvironmentTask) and (stages := _find_imitating_stages(config)):
        raise ConfigError(
            f"the warm-start stage {stages[0]} imitates single answers, and task {task.name!r} is a text environment, "
            "whose episodes have several turns: add trainer.callbacks.warm_start.stages=null, or choose a setting of "
            "environments, such as method=grpo setting=gridworld"
        )
    if not isinstance(task, Task) or not isinstance(task, NamedScores) or not len(task):
        return
    prompt = task[0]
    if prompt.answer is not None:
        return
    # scores that only a row with an answer has
    lost = set(task.score_names(dataclasses.replace(prompt, answer="0"))) - set(task.score_names(prompt))
    if not lost or _states_answer(task):
        return
    place = prompt.place or prompt.key
    remedy = "set task.answer to the column of the answers"
    if data.rollout.imitates_answers:
        raise ConfigError(f"{place}: the row has no answer to imitate; {remedy}")
    if paid := sorted(lost & set(getattr(reward, "weights", {}))):
        raise ConfigError(
            f"{place}: the row has no answer, so there is no score {paid[0]!r}, which the reward pays; {remedy}, or "
            "choose a reward that needs none, such as reward=judge"
        )
    stages = _find_imitating_stages(config)
    evaluators = getattr(data.evaluation, "evaluators", None) or {}
    missing = set() if scores is None else lost - scores  # a reward may give the score that the task does not
    names = [name for name, evaluator in evaluators.items() if getattr(evaluator, "score_name", None) in missing]
    needs = [f"the warm-start stage {name} imitates" for name in stages]
    needs += [f"the evaluator {name} compares with" for name in names]
    if needs:
        words = ["trainer.callbacks.warm_start.stages=null"] if stages else []
        words += [f"evaluation.evaluators.{name}=null" for name in names]
        raise ConfigError(
            f"{place}: the row has no answer, which {' and '.join(needs)}; {remedy}, or add {' '.join(words)}"
        )


def _states_answer(task: Task) -> bool:
    """Whether the first row has something to imitate all the same, such as the last message of a conversation."""
    try:
        task.demonstrate(0)
    except (NotImplementedError, ValueError):
        return False
    return True


def _find_imitating_stages(config: Mapping[str, Any]) -> list[str]:
    """The names of the warm-start stages that will run and imitate answers to the task of this run."""
    return [name for name, stage in read_stages(config).items() if _imitates(stage.arguments, stage.words)]


def _imitates(arguments: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a stage plays the answers to the task of the run; `words` are its arguments without the common ones."""
    if any(word.lstrip("+").startswith(("task", "data.task")) for word in words):
        return False  # a task of its own
    rollout = import_class((compose(arguments).data.get("rollout") or {}).get("_target_"))
    return getattr(rollout, "imitates_answers", False)
