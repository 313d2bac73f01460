"""Reward computed by a user's functions, whose numbers are named scores of the episode."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.messages import join_contents
from mmrl.core.types import Episode, Prompt, Task
from mmrl.rewards.base import NamedScores, Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.function_calls import BATCH, Failure, FunctionCalls, Signature, bind_arguments
from mmrl.rewards.worker import CallRaised, CallTimedOut, WorkerDied, WorkerPool

log = logging.getLogger(__name__)

_LINES = 3  # failed calls of an iteration that have a line each
Parts = Sequence[Sequence[Episode]]
"""The episodes of each call."""


class FunctionReward(Reward):
    """Reward of an episode: sum_k weights_k * scores_k over the scores that functions return.

    A function takes its arguments by name: prompt (text), messages, completion (text or an action), answer, images,
    num_tokens, truncated, prompt_end (a tag such as <think> that the chat template opened before the completion), any
    column of the row (`Prompt.info`), and the task's scores; **kwargs takes all of them. A
    function with a parameter `completions`, `prompts` or `answers` is called once for all completions of a prompt, with
    lists; any other function is called for each completion. It returns a number, a dict of named numbers, or a list of
    either for all completions. Functions declared with `async def` run for all completions at the same time.

    The functions run in a worker process. An exception, a call past its time limit, a dead process and a value that is
    not a finite number end the run; none is counted as 0. With `max_failures`, such as of requests to a judge, so many
    calls of an iteration may fail: their episodes are errors, are not trained on and count as `rollout/errors`.

    Args:
        functions: paths, as rewards.py:score, rewards.py:Judge.score or package.module:score.
        weights: by name of the score: 1 for those of the functions that are not named here. Scores of the task, such
            as exact, count only if they are named.
        timeout_s: time limit of a call in seconds; of all calls of an iteration for an async function. Where calls
            may fail, coroutines that are late fail alone, at nine tenths of it.
        in_process: call the functions in this process, which has no time limit.
        max_failures: calls of an iteration that may fail; one more ends the run.
    """

    foreign = True

    def __init__(
        self,
        functions: list[str],
        weights: dict[str, float] | None = None,
        timeout_s: float = 60.0,
        in_process: bool = False,
        max_failures: int = 0,
    ):
        check_at_least(0, "reward", max_failures=max_failures)
        if not functions:
            raise ValueError("reward.functions is empty; name a function, as in reward=rewards.py:score")
        self.functions, self.weights = list(functions), dict(weights or {})
        self.timeout_s, self.in_process, self.max_failures = timeout_s, in_process, max_failures
        patience_s = 0.9 * timeout_s if max_failures and not in_process else None
        load = functools.partial(FunctionCalls, self.functions, in_process, patience_s)
        self._pool = None if in_process else WorkerPool(load, timeout_s=timeout_s)
        try:
            self._calls: Callable[..., Any] = load() if self._pool is None else self._pool.call
            self._signatures: list[Signature] = self._calls(None)
        except CallRaised as error:
            raise ValueError(error.text) from error
        except (CallTimedOut, WorkerDied) as error:
            raise RuntimeError(f"reward={', '.join(self.functions)}: {error}, during the import") from error
        names = [signature.name for signature in self._signatures]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"reward={self.functions}: two functions are called {twice[0]!r}, which is the name of their score; "
                "rename one"
            )
        self._names: dict[str, str] = {}  # of scores, and the function that returned it

    def check_task(self, task: Task) -> None:
        """Refuse a required parameter that is no field, no score and no column of every prompt of the task."""
        if not isinstance(task, NamedScores):
            return
        prompt = task[0]
        first = Episode(prompt, 0, 0, scores=dict.fromkeys(task.score_names(prompt), 0.0))
        for signature in self._signatures:
            _bind(signature, [first])
        fields = {*episode_columns(replace(first, prompt=replace(prompt, info={}))), *BATCH}
        columns = [(each, set(each.required) - fields) for each in self._signatures]
        if not any(names for _, names in columns):
            return
        for prompt in task.prompts_to_check():
            for signature, names in columns:
                if absent := sorted(names - prompt.info.keys()):
                    raise ValueError(_format_missing(signature, absent[0], prompt, sorted(prompt.info)))

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        out: list[dict[str, float]] = [{} for _ in episodes]
        groups: dict[int, list[int]] = {}
        for index, episode in enumerate(episodes):
            groups.setdefault(episode.group, []).append(index)
        failures: list[str] = []  # of this iteration's calls
        for number, signature in enumerate(self._signatures):
            parts = list(groups.values()) if signature.batch else [[index] for index in range(len(episodes))]
            calls = [[episodes[index] for index in part] for part in parts]
            for part, answer in zip(parts, self._run(number, signature, calls)):
                if isinstance(answer, RuntimeError):
                    self._drop([episodes[index] for index in part], answer, failures)
                    continue
                for index, by_name in zip(part, answer):
                    self._check_names(signature, by_name)
                    out[index].update(by_name)
        if len(failures) > _LINES:
            further = len(failures) - _LINES
            log.warning("%d further calls failed (%d of at most %d)", further, len(failures), self.max_failures)
        return out

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum({**dict.fromkeys(self._names, 1.0), **self.weights})(group)

    def _drop(self, part: Sequence[Episode], error: RuntimeError, failures: list[str]) -> None:
        """Make the episodes of a failed call errors; end the run after too many of them."""
        failures.append(str(error))
        if len(failures) > self.max_failures:
            count = f" ({len(failures)} calls failed, reward.max_failures={self.max_failures})"
            remedy = "; where a judge fails now and then, reward.max_failures=8 leaves the episodes of such calls out"
            raise RuntimeError(f"{error}{count if self.max_failures else remedy}") from error.__cause__
        if len(failures) <= _LINES:
            log.warning("%s; its episodes are left out (%d of at most %d)", error, len(failures), self.max_failures)
        for episode in part:
            episode.ended, episode.info["error"], episode.scores = "error", str(error), {}

    def _run(self, number: int, signature: Signature, parts: Parts) -> list[list[dict[str, float]] | RuntimeError]:
        """Call one function: for each part, the named numbers of its episodes, or the error of its call."""
        calls = [(_bind(signature, part), len(part)) for part in parts]
        if signature.is_async:
            answers = self._ask(number, signature, calls, parts)
        else:
            answers = [self._ask_one(number, signature, call, part) for call, part in zip(calls, parts)]
        return [
            RuntimeError(_format(signature, answer.reason, part, answer.position))
            if isinstance(answer, Failure)
            else answer
            for part, answer in zip(parts, answers)
        ]

    def _ask_one(self, number: int, signature: Signature, call: Any, part: Sequence[Episode]) -> Any:
        """Call a function that is not async once; where calls may fail, an exceeded time limit is a result too."""
        try:
            return self._ask(number, signature, [call], [part])[0]
        except RuntimeError as error:
            if not self.max_failures:
                raise
            return error

    def _ask(self, number: int, signature: Signature, calls: list[Any], parts: Parts) -> list[Any]:
        if not calls:
            return []
        part = [episode for one in parts for episode in one]
        try:
            return self._calls(number, calls)
        except CallTimedOut as error:
            reason = f"took longer than {self.timeout_s:g} s and was killed (reward.timeout_s changes the limit)"
            raise RuntimeError(_format(signature, reason, part)) from error
        except WorkerDied as error:
            raise RuntimeError(_format(signature, f"ended its process: {error}", part)) from error

    def _check_names(self, signature: Signature, by_name: Mapping[str, float]) -> None:
        if twice := [name for name in by_name if self._names.get(name, signature.path) != signature.path]:
            raise ValueError(
                f"reward={signature.path}: {signature.name} returned a score {twice[0]!r}, and so does "
                f"{self._names[twice[0]]}; rename one"
            )
        names = {name for name, path in self._names.items() if path == signature.path}
        if names and names != set(by_name):
            raise ValueError(
                f"reward={signature.path}: {signature.name} returned the scores {sorted(by_name)} after "
                f"{sorted(names)}; return the same names for every completion"
            )
        self._names.update(dict.fromkeys(by_name, signature.path))


def _bind(signature: Signature, part: Sequence[Episode]) -> dict[str, Any]:
    rows = [episode_columns(episode) for episode in part]
    try:
        return bind_arguments(signature, rows)
    except KeyError as error:
        have = [*(BATCH if signature.batch else ()), *rows[0]]
        raise ValueError(_format_missing(signature, error.args[0], part[0].prompt, have)) from error


def _format_missing(signature: Signature, name: str, prompt: Prompt, have: Sequence[str]) -> str:
    remedy = f"add it to the row {prompt.place}" if prompt.place else "choose a task that has it"
    return (
        f"reward={signature.path}: {signature.name} has a parameter {name!r}, and {prompt.key!r} has no such column; "
        f"there are {', '.join(have)}. Rename the parameter, give it a default, or {remedy}"
    )


def episode_columns(episode: Episode) -> dict[str, Any]:
    """The columns of a row and the fields of an episode, by the names that a function's parameters have."""
    prompt = episode.prompt
    return {
        **episode.scores,
        **prompt.info,
        "prompt": join_contents(prompt.messages),
        "messages": list(prompt.messages),
        "completion": episode.output,
        "answer": prompt.answer,
        "images": list(prompt.images),
        "videos": list(prompt.videos),
        "num_tokens": episode.tokens,
        "truncated": episode.ended == "length",
        "prompt_end": episode.info.get("prompt_end", ""),
    }


def _format(signature: Signature, reason: str, part: Sequence[Episode], position: int | None = None) -> str:
    where, _, _ = signature.path.rpartition(":")
    name = f"{os.path.basename(where)}: {signature.name}" if where.endswith(".py") else signature.path
    if len(part) > 1 and position is None:
        key = part[0].prompt.key
        return f"reward function {name} {reason}; it was given {len(part)} completions, the first of {key!r}"
    episode = part[position or 0]
    output = repr(episode.output)
    output = output if len(output) <= 200 else output[:200] + "..."
    return (
        f"reward function {name} {reason}; it was given the completion {output} and the answer "
        f"{episode.prompt.answer!r} of {episode.prompt.key!r}"
    )
