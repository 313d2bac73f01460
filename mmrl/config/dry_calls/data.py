"""Try the reward and the task of a data module once, as a run uses them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mmrl.core.errors import ConfigError, is_user_error
from mmrl.core.text_environment import EnvironmentTask
from mmrl.core.types import Completion, Episode, Prompt, Task, Turn
from mmrl.engines.base import RefusesPrompts
from mmrl.rewards.base import NamedScores, Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import WrongReturn, add_reward, score
from mmrl.rollouts.text.single_turn import SingleTurn

TEXTS = ("0", "")
"""Completions of the call: a trivial text, and the empty one that a policy can always give."""
log = logging.getLogger(__name__)
_OURS = ("mmrl", "tasks", "sims")
_HINT = "it was called once before the run, with the first problem of the task"


def check_data(data: Any, reward: Any = None) -> frozenset[str] | None:
    """Refuse what a run would refuse after its model is built, or in its first iteration.

    The rollout and the reward look at the task, and the engine at its first problem; a reward of others scores two
    completions of that problem; and the expert's answer to it, where the problem or the task is one of others, must be
    right by the task's own score.
    Of a reward whose episodes are played in several turns, or in a simulator, only the form of what it returns is
    looked at: its score of an episode that was not played says nothing.

    Args:
        data: a data module.
        reward: one like the data's, whose state no run reads.

    Returns:
        Names of the scores that a reward of others gave in its trial, empty for one of ours; None where none was tried.

    Raises:
        ConfigError: with the part, the cause and what helps.
    """
    task = getattr(data, "task", None)
    if not isinstance(task, Task) or not len(task):
        return None
    prompt = _first_prompt(task)
    data.rollout.check_task(task)
    if isinstance(data.engine, RefusesPrompts):
        _check_prompt(data.engine, prompt)
    if not isinstance(reward, Reward):
        return None
    innermost = _unwrap(reward)
    if not prompt.messages:  # a state of a simulator
        _try_form(task, innermost, prompt)
        return None
    names: frozenset[str] | None = None if _is_foreign(innermost) else frozenset()
    single = type(data.rollout) is SingleTurn and not isinstance(task, EnvironmentTask)
    if single and _is_foreign(task):
        _try_task(task, prompt)
    if _is_foreign(innermost) and (single or innermost.foreign):
        names = _try_reward(task, innermost, prompt, data.group_size)
    else:
        _try_form(task, innermost, prompt)
    # a task of mmrl knows its own answers, but not always the extractor that a setting left behind for it
    if (_is_foreign(task) or getattr(task, "extract", None) is not None) and not isinstance(task, EnvironmentTask):
        _check_expert(task, pays=data.rollout.samples and "exact" in getattr(reward, "weights", {}))
    return names


def check_row_columns(data: Any, readers: Mapping[str, str]) -> None:
    """Refuse rows of a data set without a column that the loss or an annotator reads.

    Args:
        data: a data module.
        readers: as of `Rollout.check_columns`.
    """
    task = getattr(data, "task", None)
    if isinstance(task, Task) and len(task):
        try:
            data.rollout.check_columns(task, readers)
        except ValueError as error:
            raise _explain(error, f"data.task ({type(task).__name__})") from error


def _is_foreign(part: Any) -> bool:
    """Whether a part is of others' code, or runs what others wrote, as does a reward whose scorer of steps is."""
    scorer = getattr(part, "scorer", None)
    foreign = getattr(part, "foreign", False) or type(part).__module__.partition(".")[0] not in _OURS
    return foreign or (scorer is not None and _is_foreign(scorer))


def _unwrap(reward: Reward) -> Reward:
    """Return the reward of others inside of parts of ours, such as `ScheduledReward`; else the innermost one."""
    while not _is_foreign(reward) and isinstance(inner := getattr(reward, "inner", None), Reward):
        reward = inner
    return reward


def _first_prompt(task: Task) -> Prompt:
    try:
        return task[0]
    except Exception as error:
        raise _explain(error, f"data.task ({type(task).__name__}): its first problem") from error


def _check_prompt(engine: RefusesPrompts, prompt: Prompt) -> None:
    try:
        engine.check_prompt(prompt)
    except RuntimeError as error:  # as the engine raises it of a request
        raise ConfigError(str(error)) from error


def _try_task(task: Task, prompt: Prompt) -> None:
    """Score two completions of a problem by the task alone."""
    for text in TEXTS:
        try:
            score([build_episode(prompt, text)], task, WeightedSum({}))
        except Exception as error:
            raise _explain(error, f"data.task ({type(task).__name__}): score of the completion {text!r}") from error


def _try_reward(task: Task, reward: Reward, prompt: Prompt, group_size: int) -> frozenset[str]:
    """Score two completions of a problem, in one group where the run has groups; return the names of their scores."""
    episodes = [build_episode(prompt, text, n if group_size == 1 else 0, n) for n, text in enumerate(TEXTS)]
    try:
        if isinstance(task, EnvironmentTask):
            reward.scores(episodes)
        else:
            score(episodes, task, reward)
    except Exception as error:
        raise _explain(error, f"data.reward ({type(reward).__name__})") from error
    if all(episode.ended == "error" for episode in episodes):  # calls that may fail, of which none did not
        raise ConfigError(f"{episodes[0].info['error']}; {_HINT}, and failed for every completion")
    return frozenset(name for episode in episodes for name in episode.scores)


def _try_form(task: Task, reward: Reward, prompt: Prompt) -> None:
    """Refuse a reward of others that returns something else than numbers for two episodes that were not played."""
    if not _is_foreign(reward) or reward.foreign:
        return
    episodes = [build_episode(prompt, text, 0, n) for n, text in enumerate(TEXTS)]
    names = task.score_names(prompt) if isinstance(task, NamedScores) else ()
    for episode in episodes:
        episode.scores = dict.fromkeys(names, 0.0)
    try:
        add_reward(episodes, task, reward)
    except WrongReturn as error:
        raise ConfigError(f"{error} ({_HINT})") from error
    except Exception:  # it reads what episodes have that were played
        log.debug("data.reward (%s) cannot be tried before a run", type(reward).__name__, exc_info=True)


def _check_expert(task: Task, pays: bool) -> None:
    """Refuse a task by whose score its own answer to its first problem is wrong; warn where `exact` is not paid."""
    try:
        answer = task.demonstrate(0)
    except (NotImplementedError, ValueError):  # no answer is stated
        return
    if not isinstance(answer, str):
        return
    episode = build_episode(task[0], answer)
    try:
        scores = task.scores([episode])[0]
    except Exception as error:
        raise _explain(error, f"data.task ({type(task).__name__}): the score of its own answer") from error
    if scores.get("exact", 1.0) < 1:
        place = episode.prompt.place or episode.prompt.key
        keys = [f"task.{name}" for name in ("extract", "equality") if hasattr(task, name)]
        text = (
            f"{place}: the row's own answer {_shorten(answer)} has the scores {scores}, so no completion could be "
            f"right; correct {', '.join((*keys, 'the column of the answer')) if keys else 'the task or its answer'}"
        )
        if pays:
            raise ConfigError(text)
        log.warning("%s", text)


def build_episode(prompt: Prompt, text: str, group: int = 0, sample_index: int = 0) -> Episode:
    """Build an episode whose only turn is a text of one choice."""
    one = torch.zeros(1)
    completion = Completion({}, one.long(), one, torch.ones(1, dtype=torch.bool), text)
    return Episode(copy.copy(prompt), group, sample_index, [Turn(completion)])


def _explain(error: Exception, part: str) -> ConfigError:
    """The message of mmrl itself, or the part with what its code raised."""
    if isinstance(error, ConfigError) or is_user_error(error):
        return ConfigError(str(error))
    return ConfigError(f"{part} raised {type(error).__name__}: {error}; {_HINT}")


def _shorten(text: Sequence[Any], length: int = 80) -> str:
    return repr(text if len(text) <= length else f"{text[:length]}...")
