"""Laws of tasks, for every option of conf/task that a verifier of text scores."""

import functools
import itertools
import json
import math
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt, Task
from mmrl.evaluation.task_baselines import demonstrations, mean_scores, measure_baselines
from mmrl.experiments.results import FOLDER
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.generated import SeededTask
from tests.laws.bombs import BOMBS
from tests.laws.equal_answers import EQUAL
from tests.laws.hostile_answers import MIXED, fixed_answers, list_near_misses, stuffed_answers
from tests.laws.task_examples import (
    ALLOWED,
    CHOICES,
    ENVIRONMENTS,
    HOSTILE,
    NEAR,
    build_task,
    drop_screenshots,
    names,
    read_floor,
    require_option,
)
from tests.times import fits

MANY, FEW = 64, 8


FLOORS = [*sorted(set(names()) - CHOICES), *sorted(ENVIRONMENTS)]
"""Options whose floor is stored; a test of an option has the same place in both lists, after which pytest sorts."""


@pytest.fixture(scope="module", params=[*sorted(set(names()) - CHOICES), *sorted(CHOICES)])
def task(request) -> Iterator[Task]:
    """The task of an option, all of whose tests run after one another and draw each problem once."""
    require_option(request.param)
    yield build_task(request.param)
    draw_once.cache_clear()
    write_once.cache_clear()


DRAW, WRITE = SeededTask.problem, SeededTask.__getitem__


@functools.lru_cache(maxsize=8192)
def draw_once(task: SeededTask, index: int) -> Any:
    """Draw a problem, which is a function of task and index: one of these tests compares draws without this cache."""
    return DRAW(task, index)


@functools.lru_cache(maxsize=8192)
def write_once(task: SeededTask, index: int) -> Prompt:
    """Write the prompt of a problem."""
    return WRITE(task, index)


@pytest.fixture(autouse=True)
def cached_problems(request, monkeypatch) -> None:
    """Most of the time of these tests is that of drawing: images are rendered, queries are run."""
    if request.function is not test_problems_are_the_same_again_and_survive_another_process:
        monkeypatch.setattr(SeededTask, "problem", draw_once)
        monkeypatch.setattr(SeededTask, "__getitem__", write_once)


def first(task: Task, count: int):
    return [task[index] for index in range(min(count, len(task)))]


def contents(prompt) -> str:
    """What the policy sees."""
    return json.dumps(prompt.messages, default=str) + "".join(image.tobytes().hex() for image in prompt.images)


def test_problems_are_the_same_again_and_survive_another_process(task):
    again: Task = pickle.loads(pickle.dumps(task))
    for before, after in zip(first(task, FEW), first(again, FEW)):
        assert (before.key, before.answer, contents(before)) == (after.key, after.answer, contents(after))


def test_keys_are_distinct_and_indices_outside_are_refused(task):
    for split in ("train", "held_out"):
        part = task.on(split)
        prompts = first(part, MANY)
        assert [prompt.index for prompt in prompts] == list(range(len(prompts)))
        assert len({prompt.key for prompt in prompts}) == len(prompts)
        for index in (-1, len(part)):
            with pytest.raises(IndexError):
                part[index]


def test_no_held_out_problem_is_trained_on(task):
    count = 256 if task[0].images else 4096  # images cost more than text
    if isinstance(task, SeededTask):  # the split is a function of the problem, so fewer problems are enough
        count //= 2
        splits = [task.on("train"), task.on("held_out")]
        for part in splits:
            found = {other.split_of(part.problem(index)) for index in range(min(MANY, len(part))) for other in splits}
            assert found == {part.split}
    seen = {contents(prompt) for prompt in first(task.on("train"), count)}
    assert not any(contents(prompt) in seen for prompt in first(task.on("held_out"), count))


def test_prompts_are_chat_messages_with_the_images_that_they_name(task):
    for prompt in first(task, FEW):
        assert prompt.messages
        parts = [p for m in prompt.messages if not isinstance(m["content"], str) for p in m["content"]]
        assert sum(part["type"] == "image" for part in parts) == len(prompt.images)
        for image in prompt.images:
            assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3


def test_the_expert_earns_the_maximum_on_every_problem(task):
    for split in ("train", "held_out"):
        part = task.on(split)
        prompts = first(part, MANY)
        answers = demonstrations(part, prompts)
        for scores in part.scores([scripted_episode(*row) for row in zip(prompts, answers)]):
            assert scores["exact"] == 1
            assert all(0 <= score <= 1 for score in scores.values())


def test_guesses_are_drawn_from_the_seed_and_do_not_solve_the_task(task):
    prompts = first(task.on("held_out"), MANY)
    draws = [[task.guess(p, derive_rng("guess", seed, p.key)) for p in prompts] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert mean_scores(task.on("held_out"), prompts, draws[0])["exact"] < 0.6


def test_scores_of_a_group_are_those_of_its_episodes_alone(task):
    held_out = task.on("held_out")
    prompts = first(held_out, FEW)
    answers = demonstrations(held_out, prompts)
    episodes = [scripted_episode(p, a) for p in prompts for a in (answers[0], answers[-1], "?")]
    assert held_out.scores(episodes) == [held_out.score(episode) for episode in episodes]


@pytest.fixture
def floor(task, request) -> dict[str, float]:
    name = request.node.callspec.params["task"]
    return (measure_baselines(task, MANY) if name in CHOICES else read_floor(name)).floor


def find_wrong(task: Task, prompt: Prompt, answers: list[str]) -> list[str]:
    """The first answers that are wrong for a prompt, and the last one: as many as `stuffed_answers` uses."""

    def is_wrong(answer: str) -> bool:
        return task.score(scripted_episode(prompt, answer))["exact"] == 0

    first_wrong = list(itertools.islice(filter(is_wrong, answers), MIXED))
    return first_wrong if len(first_wrong) < MIXED else [*first_wrong, next(filter(is_wrong, reversed(answers)))]


def test_hostile_answers_score_no_more_than_the_floor(task, floor, request):
    held_out = task.on("held_out")
    prompts = first(held_out, FEW)
    right = demonstrations(held_out, prompts)
    others = demonstrations(task, first(task, MANY))
    allowed = ALLOWED.get(request.node.callspec.params["task"], set())
    extra = HOSTILE.get(request.node.callspec.params["task"], lambda prompt, right: {})
    by_kind: dict[str, list[float]] = {}
    for prompt, answer in zip(prompts, right):
        wrong = find_wrong(held_out, prompt, [other for other in others if other != answer])
        rows = {**stuffed_answers(answer, wrong), **{text[:40]: text for text in fixed_answers()}}
        rows |= extra(prompt, answer)
        all_scores = held_out.scores([scripted_episode(prompt, text) for text in rows.values()])
        for kind, scores in zip(rows, all_scores):
            assert all(math.isfinite(score) and score <= 1 for score in scores.values()), kind
            by_kind.setdefault(kind, []).append(scores["exact"])
    earned = {kind: float(np.mean(scores)) for kind, scores in by_kind.items() if kind not in allowed}
    assert {kind: mean for kind, mean in earned.items() if mean > floor["exact"]} == {}
    assert allowed <= set(by_kind)


def test_near_misses_are_wrong(task, request):
    """Less than 1 % of the answers that differ from the right one in one place and are not as right by an oracle."""
    name, held_out = request.node.callspec.params["task"], task.on("held_out")
    prompts = first(held_out, FEW // 2)
    rows = [
        (prompt, right, near)
        for prompt, right in zip(prompts, demonstrations(held_out, prompts))
        for near in list_near_misses(right)
    ]
    scores = held_out.scores([scripted_episode(prompt, near) for prompt, _, near in rows])
    accepted = [row for row, score in zip(rows, scores) if score["exact"] == 1]
    equal = EQUAL.get(name, lambda prompt, right, near: False)
    passed = [(right, near) for prompt, right, near in accepted if not equal(prompt, right, near)]
    assert len(passed) < 0.01 * len(rows), passed
    assert (len(accepted) < 0.01 * len(rows)) != (name in NEAR), accepted


def test_every_option_that_accepts_several_answers_has_an_oracle():
    assert set(EQUAL) == set(NEAR)


def test_bombs_are_scored_within_seconds(task):
    """Processor time of this process; that of others, which run queries and programs, is limited by them."""
    held_out = task.on("held_out")
    prompt = held_out[0]
    held_out.scores([scripted_episode(prompt, "?")])  # what is loaded once
    for kind, text in BOMBS.items():

        def score(kind: str = kind, text: str = text) -> None:
            start = time.monotonic()
            scores = held_out.scores([scripted_episode(prompt, text)])[0]
            assert all(math.isfinite(score) and score <= 1 for score in scores.values()) and scores["exact"] == 0, kind
            assert time.monotonic() - start < 60, kind

        assert fits(score, 1), kind


@pytest.mark.parametrize("task", FLOORS, indirect=True, scope="module")
def test_stored_floor_and_ceiling_are_current(task, request):
    stored = read_floor(request.node.callspec.params["task"])
    measured = measure_baselines(drop_screenshots(task), stored.count)
    if measured.kind != stored.kind:  # that of the task with its screenshots
        measured = replace(measured, kind=measure_baselines(task, 1).kind)
    assert stored.plain() == measured.plain()


def test_no_floor_is_stored_for_a_task_that_is_gone():
    assert {path.stem for path in (FOLDER / "tasks").rglob("*.json")} == set(FLOORS)
