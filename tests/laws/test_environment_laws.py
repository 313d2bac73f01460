"""Laws of text environments, for every option of conf/task that has some."""

import math
import pickle
from typing import Any

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from mmrl.core.text_environment import EnvironmentTask, TextStep
from mmrl.rollouts.text.scripted import play_episode
from tests.laws.bombs import BOMBS
from tests.laws.hostile_answers import list_near_misses
from tests.laws.task_examples import BROWSERS, ENVIRONMENTS, build_task, drop_screenshots, read_floor, require_option
from tests.times import fits

MANY, FEW = 64, 8


@pytest.fixture(params=sorted(ENVIRONMENTS), scope="module")
def task(request) -> Any:
    require_option(request.param)
    built = build_task(request.param)
    assert isinstance(built, EnvironmentTask)
    return built


def first(task, count: int):
    return [task[index] for index in range(min(count, len(task)))]


def plain(step: TextStep) -> tuple:
    return (step.text, tuple(image.tobytes() for image in step.images), step.reward, step.terminated, step.truncated,
            step.valid, dict(step.scores), step.admissible_actions)  # fmt: skip


def walk(environment, prompt, seed: int, draws: int, turns: int) -> list[TextStep]:
    """The steps of random actions, until the episode is over."""
    rng = derive_rng("walk", draws)
    steps = [environment.reset(prompt, seed)]
    while len(steps) <= turns and not steps[-1].done:
        steps.append(environment.step(environment.random_action(rng)))
    return steps


def test_an_episode_is_a_function_of_prompt_seed_and_actions(task):
    again = pickle.loads(pickle.dumps(task))
    environment = task.make_environment()
    for before, after in zip(first(task, FEW), first(again, FEW)):
        one = walk(environment, before, 3, before.index, task.max_turns)
        other = walk(again.make_environment(), after, 3, before.index, task.max_turns)
        assert [plain(step) for step in one] == [plain(step) for step in other]
        assert plain(environment.reset(before, 4)) == plain(one[0])  # what happens by chance comes later
    assert before.key == after.key and len({task[i].key for i in range(FEW)}) == FEW


def test_a_saved_state_continues_with_the_same_steps(task):
    for prompt in first(task, FEW):
        environment, other = task.make_environment(), task.make_environment()
        steps = walk(environment, prompt, 1, prompt.index, 2)
        if steps[-1].done:
            continue
        state = pickle.loads(pickle.dumps(environment.state_dict()))
        rng = derive_rng("after", prompt.index)
        actions = [environment.random_action(rng) for _ in range(3)]
        assert plain(other.load_state_dict(state)) == plain(steps[-1])
        for action in actions:
            one, two = environment.step(action), other.step(action)
            assert plain(one) == plain(two)
            if one.done:
                break


def test_no_initial_state_is_in_both_splits(task):
    def starts(split: str, count: int) -> set[str]:
        part = task.on(split)
        return {part.split_key(part.problem(index)) for index in range(min(count, len(part)))}

    assert not starts("train", 1024) & starts("held_out", 256)
    for split in ("train", "held_out"):
        part = task.on(split)
        assert {part.split_of(part.problem(index)) for index in range(FEW)} == {split}
        for index in (-1, len(part)):
            with pytest.raises(IndexError):
                part[index]


def test_steps_are_text_and_images_with_finite_rewards_and_the_same_scores(task):
    names = set()
    for prompt in first(task, FEW):
        assert prompt.messages
        for step in walk(task.make_environment(), prompt, 0, prompt.index, task.max_turns):
            assert step.text and math.isfinite(step.reward)
            assert all(image.dtype == np.uint8 and image.shape[2:] == (3,) for image in step.images)
            assert all(0 <= score <= 1 for score in step.scores.values())
            names.add(tuple(sorted(step.scores)))
    assert len(names) == 1 and "exact" in names.pop()


def test_the_expert_solves_every_episode_in_time(task, request):
    """On half as many problems of each split as the stored ceiling has: few where an episode is slow."""
    assert 1 <= len(task.script(0)) <= task.max_turns
    count = min(MANY, read_floor(request.node.callspec.params["task"]).count // 2)
    for split in ("train", "held_out"):
        part = drop_screenshots(task).on(split)
        for prompt in first(part, count):
            episode = play_episode(part, prompt, lambda environment: environment.expert_action())
            assert episode.ended == "done" and part.score(episode)["exact"] == 1
            assert episode.info["counts"] == {"environment/invalid": 0, "environment/unparsable": 0}


def test_stated_actions_are_different_and_known_and_the_expert_takes_them(task):
    for prompt in first(task, 2):
        environment = task.make_environment()
        actions = environment.reset(prompt).admissible_actions
        assert len(set(actions)) == len(actions)
        assert not actions or environment.expert_action() in actions
        for action in actions:
            environment.reset(prompt)
            assert environment.step(action).valid


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_random_actions_do_not_solve_the_task(name):
    stored = read_floor(name)
    assert stored.floor["exact"] < 0.6 < stored.expert["exact"] == 1


@pytest.mark.parametrize("text", ["", " ", "?", "action", "\u0000", "U" * 5000, "{'a': [", "١", "<image>", "ＵＰ"])
def test_hostile_actions_are_answered_and_earn_nothing(task, text):
    for prompt in first(task, FEW):
        environment = task.make_environment()
        environment.reset(prompt)
        step = environment.step(text)
        assert step.scores["exact"] == 0 and step.reward <= 0 and not step.valid


def test_an_episode_of_another_rollout_is_refused(task):
    episode = play_episode(task, task[0], lambda environment: environment.expert_action())
    del episode.info["scores"]
    with pytest.raises(ValueError, match=r"played with rollout=text_environment"):
        task.score(episode)


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_answered_within_a_second(task, kind):
    environment, prompt = task.make_environment(), task[0]

    def answer() -> None:
        environment.reset(prompt, 0)
        step = environment.step(BOMBS[kind])
        assert math.isfinite(step.reward) and all(map(math.isfinite, step.scores.values()))
        assert len(step.text) < 10_000

    assert fits(answer, 1)


def _is_equal_deal(prompt, right: str, near: str) -> bool:
    """Whether a proposal is worth as much to the policy."""
    worth = [
        sum(int(n) * value for n, value in zip(text.split()[1:], prompt.info["problem"].values))
        for text in (right, near)
    ]
    return worth[0] == worth[1]


EQUAL_ACTIONS = {
    "negotiation": _is_equal_deal,
    "twenty_questions": lambda prompt, right, near: right.rstrip("?") == near.rstrip("?"),
}
"""By option, which accepted near misses of the expert's last action are right."""


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS - {*BROWSERS}))  # a click is right anywhere in an element
def test_near_misses_of_the_last_action_do_not_solve_the_task(name):
    require_option(name)
    task = build_task(name).on("held_out")
    equal, count, passed = EQUAL_ACTIONS.get(name, lambda prompt, right, near: False), 0, []
    for prompt in first(task, 3):
        environment = task.make_environment()
        environment.reset(prompt, 0)
        actions = []
        step = None
        while step is None or not step.done:
            actions.append(environment.expert_action())
            step = environment.step(actions[-1])
        for near in list_near_misses(actions[-1]):
            environment.reset(prompt, 0)
            for action in (*actions[:-1], near):
                step = environment.step(action)
            count += 1
            if step.scores["exact"] and not equal(prompt, actions[-1], near):
                passed.append((actions[-1], near))
    assert len(passed) < 0.01 * count, passed
