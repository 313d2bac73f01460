"""Comparers of frames: scripts, functions, and a vision-language model that is asked in two steps."""

import re

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.methods.control.offline_rl_vlm_f.comparers import FunctionComparer, JudgeComparer, RewardComparer
from mmrl.methods.control.offline_rl_vlm_f.pairs import FramePair
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rewards.judges.server import ServerJudge
from tests.rewards.judges.stub_server import StubServer

HERE = "tests.methods.control.offline_rl_vlm_f.recording"
RNG = np.random.default_rng(0)


def pair(first: int, second: int, rewards=None) -> FramePair:
    frames = [np.full((17, 17, 3), level, np.uint8) for level in (first, second)]
    return FramePair(*frames, "a bright room", rewards)


def test_the_script_compares_rewards_and_some_labels_are_wrong():
    pairs = [pair(0, 0, (1.0, 0.0)), pair(0, 0, (0.0, 1.0)), pair(0, 0, (0.0, 0.1)), pair(0, 0, (2.0, 2.0))]
    assert RewardComparer(0.0).compare(pairs, RNG) == [0, 1, 1, -1]
    assert RewardComparer(0.0, margin=0.1).compare(pairs, RNG) == [0, 1, -1, -1]
    labels = RewardComparer(0.2).compare([pair(0, 0, (0.0, 1.0))] * 4000, np.random.default_rng(1))
    assert set(labels) == {0, 1} and abs(labels.count(0) / 4000 - 0.2) < 0.025  # 4 standard errors: 0.0253
    with pytest.raises(ConfigError, match="recorded rewards, and the recording has none"):
        RewardComparer().compare([pair(0, 0)], RNG)
    with pytest.raises(ValueError, match=r"comparer\.error"):
        RewardComparer(0.5)


def test_a_function_compares_pictures():
    assert FunctionComparer(f"{HERE}:prefer_bright").compare([pair(3, 9), pair(9, 3)], RNG) == [1, 0]
    assert FunctionComparer(f"{HERE}:prefer_nothing").compare([pair(3, 9)], RNG) == [-1]
    wrong = FunctionComparer(f"{HERE}:prefer_badly").compare([pair(3, 9)], RNG)[0]
    assert isinstance(wrong, NoAnswer) and "returned 7" in wrong.reason
    other = FunctionComparer(f"{HERE}:prefer_bright").compare([FramePair(*[np.zeros(2)] * 2, "dark")], RNG)[0]
    assert isinstance(other, NoAnswer) and "AssertionError" in other.reason


def answer(text, mark):
    """First a description, then the label that follows from it."""
    if "What is shown" in text:
        assert f"<goal-{mark}>\na bright room\n" in text
        return "The second one is brighter."
    return f"Hm.\nbetter-{mark}: {2 if 'second one is brighter' in text else 1}"


def test_a_model_describes_the_frames_and_then_says_the_label():
    with StubServer(answer) as stub:
        labels = JudgeComparer(ServerJudge(url=stub.url, model="m")).compare([pair(3, 9), pair(9, 3)], RNG)
    assert labels == [1, 1] and len(stub.requests) == 4
    contents = [body["messages"][0]["content"] for body in stub.requests]
    kinds = [["text"] if isinstance(each, str) else [part["type"] for part in each] for each in contents]
    assert sorted(kinds) == [["image_url", "image_url", "text"]] * 2 + [["text"]] * 2


@pytest.mark.parametrize("words, label", [("1", 0), ("2", 1), ("None", -1), ("both", None)])
def test_a_model_that_is_asked_once(words, label):
    with StubServer(lambda text, mark: f"better-{mark}: {words}") as stub:
        given = JudgeComparer(ServerJudge(url=stub.url, model="m"), two_steps=False).compare([pair(3, 9)], RNG)[0]
    assert given == label if label is not None else "not 1, 2 or none" in given.reason
    assert len(stub.requests) == 1 and re.search("in which of them", str(stub.requests[0]), re.IGNORECASE)


def test_a_pair_without_a_description_has_no_label():
    with StubServer(answer, lambda n: 401 if n == 0 else None) as stub:
        judge = ServerJudge(url=stub.url, model="m", max_requests=1, retries=0)
        labels = JudgeComparer(judge).compare([pair(3, 9), pair(9, 3)], RNG)
    assert isinstance(labels[0], NoAnswer) and labels[1] == 1


def test_a_judge_that_sees_nothing_is_refused():
    with pytest.raises(ValueError, match=r"ScriptedJudge: it must see pictures"):
        JudgeComparer(ScriptedJudge(f"{HERE}:prefer_bright"))
