"""The task: disjoint seeds, options that are refused, floor and ceiling, rollouts that survive a killed browser."""

import os
import signal

import numpy as np
import pytest

from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.scripted import play_episode
from tasks.browser import pool
from tasks.browser.task import Browser


def test_no_seed_is_in_both_splits():
    train, held_out = Browser(), Browser().on("held_out")
    seeds = [{task[i].info["problem"][1] for i in range(len(task))} for task in (train, held_out)]
    assert [len(each) for each in seeds] == [10_000, 500] and not seeds[0] & seeds[1]
    assert {held_out[i].info["task"] for i in range(200)} == set(held_out.pages)


def test_the_prompt_describes_the_actions():
    (message,) = Browser(columns=16, rows=21, actions=["click"])[0].messages
    assert message["content"] == (
        "Do what the web page asks. Actions: click X Y (X from 0 to 15, Y from 0 to 20)."
    )
    assert Browser(explanation="")[0].messages[0]["content"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": 161}, "columns must be 1 to 160"),
        ({"view": "area", "rows": 161}, "rows must be 1 to 160"),
        ({"actions": ["drag"]}, "actions must be some of"),
        ({"actions": ["click_element"]}, "elements=true"),
        ({"screenshot": False}, "show a screenshot or elements"),
        ({"scale": 0}, "0 < scale"),
        ({"pages": []}, "at least one of pages"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Browser(**options)


def test_the_expert_solves_what_random_clicks_do_not():
    task = Browser(max_turns=1, reload=False).on("held_out")
    rng = np.random.default_rng(0)
    expert = [play_episode(task, task[i], lambda env: env.expert_action()) for i in range(24)]
    random = [play_episode(task, task[i], lambda env: env.random_action(rng)) for i in range(24)]
    assert all(task.score(episode)["exact"] == 1 for episode in expert)
    assert np.mean([task.score(episode)["exact"] for episode in random]) < 0.5
