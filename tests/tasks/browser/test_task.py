"""The task: disjoint seeds, options that are refused, floor and ceiling, rollouts that survive a killed browser."""

import os
import signal

import numpy as np
import pytest
import torch

from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collector import episode_metrics
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
    assert message["content"] == ("Do what the web page asks. Actions: click X Y (X from 0 to 15, Y from 0 to 20).")
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


class Clicks:
    """An engine that clicks into the middle of the page; before its first batch it kills the browser of an episode."""

    def __init__(self):
        self.batches = []

    def sample(self, requests, sampling):
        if not self.batches:
            page = next(iter(pool.POOL.lent))
            os.killpg(page.browser.process.pid, signal.SIGKILL)
        self.batches.append(len(requests))
        none = torch.zeros(0)
        return [Completion({}, none.long(), none, none.bool(), "click 80 130") for _ in requests]


def test_a_killed_browser_is_a_counted_error_and_the_run_goes_on():
    task = Browser(pages=["click-test"], max_turns=2, reload=False)
    engine = Clicks()
    ctx = Context(task, engine, None, Sampling(), seed=0, iteration=0)
    rollout = EnvironmentRollout(max_concurrent=3, threads=3)
    episodes = rollout.collect([(i, task[i]) for i in range(8)], ctx)
    assert [episode.ended for episode in episodes].count("error") == 1
    assert episode_metrics([episode.light() for episode in episodes], 7, 7)["rollout/errors"] == 1
    (failed,) = (episode for episode in episodes if episode.ended == "error")
    assert "does not answer" in failed.info["error"] and engine.batches[0] == 3
    rollout.close()
