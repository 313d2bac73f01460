"""Pages as text environments: observations, rewards, counted errors, saved states, several pages at a time."""

import os
import signal

import numpy as np
import pytest

from mmrl.core.types import Prompt
from tasks.browser.chromium import BrowserError
from tasks.browser.pool import POOL
from tasks.browser.task import Browser


def prompt_of(page, seed="1"):
    return Prompt("browser/train/0", ({"role": "system", "content": ""},), info={"problem": (page, seed), "task": page})


@pytest.fixture
def environment():
    environment = Browser(elements=True, actions=("click", "click_element", "type", "press", "wait")).make_environment()
    yield environment
    environment.close()


def test_an_observation_has_the_query_the_elements_and_the_screenshot(environment):
    step = environment.reset(prompt_of("click-test-2"))
    lines = step.text.splitlines()
    assert lines[:2] == ["", "Click button ONE."] and lines[-1] == ">" and not step.done
    one = next(line for line in lines if '"ONE"' in line).split()
    assert one[0].startswith("#") and one[1] == "button"
    (image,) = step.images
    assert image.shape == (210, 160, 3) and image.dtype == np.uint8
    assert tuple(image[2, 150]) == (255, 255, 0)  # the bar of the query
    done = environment.step(f"click {one[0]}")
    assert done.terminated and done.reward == 1 and done.scores == {"exact": 1, "partial": 1} and not done.images
    with pytest.raises(ValueError, match="over"):
        environment.step("wait")


def test_a_wrong_click_ends_an_episode_with_the_pages_reward(environment):
    step = environment.reset(prompt_of("click-test-2"))
    two = next(line for line in step.text.splitlines() if '"TWO"' in line).split()
    done = environment.step(f"click {two[3]} {two[4]}")
    assert done.terminated and done.reward == -1 and done.scores == {"exact": 0, "partial": 0}


def test_what_is_no_action_is_counted_and_costs_time(environment):
    environment.reset(prompt_of("click-test"))
    for action in ("tap 3 4", "click 160 0", "click #99", "scroll 3 4 up"):
        step = environment.step(action)
        assert not step.valid and not step.done and step.reward == 0
    assert environment._page.proceed(0).remaining_s == pytest.approx(10 - 0.05 - 4 * 0.5)


def test_the_expert_types_too(environment):
    environment.reset(prompt_of("enter-text"))
    actions = []
    for _ in range(4):
        actions.append(environment.expert_action())
        step = environment.step(actions[-1])
        if step.done:
            break
    assert step.reward == 1 and [action.split()[0] for action in actions] == ["click", "type", "click"]


def test_expert_and_random_actions_are_allowed_ones():
    """Where elements alone may be clicked, by their numbers."""
    environment = Browser(elements=True, actions=("click_element",)).make_environment()
    for page in ("click-test-2", "click-button", "click-tab", "focus-text-2", "click-dialog", "click-widget"):
        listed = environment.reset(prompt_of(page, "1696489289313673")).text.count("\n#")
        drawn = {environment.random_action(np.random.default_rng(seed)) for seed in range(60)}
        assert drawn == {f"click #{number}" for number in range(listed)}
        assert environment.step(environment.expert_action()).reward == 1
    environment.reset(prompt_of("click-color"))
    with pytest.raises(NotImplementedError, match="'click-color' clicks what is no listed element"):
        environment.expert_action()
    environment.close()


def test_a_saved_state_is_restored_by_its_actions(environment):
    environment.reset(prompt_of("enter-text"))
    step = environment.step(environment.expert_action())
    other = environment.task.make_environment()
    restored = other.load_state_dict(environment.state_dict())
    assert restored.text == step.text and (restored.images[0] == step.images[0]).all()
    other.close()


def test_the_area_is_cropped_scaled_and_has_a_grid_of_its_own():
    task = Browser(view="area", columns=16, rows=16, scale=0.5)
    environment = task.make_environment()
    step = environment.reset(prompt_of("click-color"))
    assert step.images[0].shape == (80, 80, 3) and (step.images[0][0] == 255).all()
    column, row = map(int, environment.expert_action().split()[1:])
    assert task.cell(*task.locate(column, row)) == (column, row) and task.locate(0, 0) == (5, 55)
    assert environment.step(f"click {column} {row}").reward == 1


def test_a_killed_browser_is_an_error_and_the_next_episode_has_another(environment):
    environment.reset(prompt_of("click-test"))
    os.killpg(environment._page.browser.process.pid, signal.SIGKILL)
    with pytest.raises(BrowserError):
        environment.step("wait")
    environment.reset(prompt_of("click-test"))
    assert environment.step(environment.expert_action()).reward == 1


def test_an_episode_without_turns_left_is_truncated_and_gives_its_browser_back():
    environment = Browser(max_turns=2).make_environment()
    environment.reset(prompt_of("click-test-2"))
    page = environment._page
    assert not environment.step("click 1 1").done
    last = environment.step("click 1 1")
    assert last.truncated and not last.terminated and environment._page is None and page not in POOL.lent
