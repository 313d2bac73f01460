"""VerlTool's reward by hand, the script of sums of balances, and two tools in one rollout."""

import pytest

from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.search.verltool import ToolReward
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.call_parser import TagParser
from tasks.arithmetic.accounts import AccountSums, Balances, Calculator
from tests.rollouts.text.test_tools import POLICY, Spoken, text_of
from tests.tiny_recipes import Counting

MARKS = TagParser("{name}", ";", "[{text}]", "[{name}]")


def episode(calls, exact):
    return Episode(Prompt("x"), 0, 0, scores={"exact": exact}, info={"calls": calls})


def test_every_invalid_call_costs_the_penalty():
    """Right after two valid and one invalid call: 1 - .1. Wrong after two invalid ones: 0 - .2. Without calls: 1."""
    group = [
        episode([("?", "ba", "ok"), ("#", "1+2", "truncated"), ("#", "x", "NotAnExpression")], 1.0),
        episode([("none", "..", "NoCall"), ("?", "zz", "UnknownName")], 0.0),
        episode([], 1.0),
    ]
    reward = ToolReward({"exact": 1.0})
    assert reward(group) == pytest.approx([0.9, -0.2, 1.0])
    assert reward.scores(group)[0] == {"calls": 3, "invalid_calls": 1, "tools": 2}
    assert [score["tools"] for score in reward.scores(group)] == [2, 0, 0]
    assert ToolReward({"exact": 1.0}, invalid_penalty=0.0)(group) == [1, 0, 1]


def test_what_the_reward_cannot_judge_is_refused():
    with pytest.raises(ValueError, match="'x' was answered without tools"):
        ToolReward({"exact": 1.0})([Episode(Prompt("x"), 0, 0, scores={"exact": 1.0})])
    with pytest.raises(ValueError, match="invalid_penalty must be at least 0"):
        ToolReward({"exact": 1.0}, invalid_penalty=-1.0)


def test_without_slips_the_script_looks_up_both_names_and_adds():
    task = AccountSums(slips=0.0)
    first, second = task[3].info["names"]
    x, y = (task.balances["train"][name] for name in (first, second))
    assert task.script(3) == [f"?{first};", f"?{second};", f"#{x}+{y};", str(x + y)]
    assert task[3].messages[0]["content"] == f"{first}+{second}=" and task[3].answer == x + y
    assert AccountSums(slips=0.0, calculator=False).script(3) == [f"?{first};", f"?{second};", str(x + y)]


def test_slips_are_syntax_without_sense():
    """With certain slips the first name is looked up twice and subtracted from itself: the answer is 0."""
    task = AccountSums(slips=1.0)
    first = task[0].info["names"][0]
    x = task.balances["train"][first]
    assert task.script(0) == [f"?{first};", f"?{first};", f"#{x}-{x};", "0"]
    right = [AccountSums().script(i)[-1] == str(AccountSums()[i].answer) for i in range(400)]
    assert 0.15 < sum(right) / 400 < 0.35  # a half times a half


def test_no_one_of_the_held_out_split_is_trained_on():
    task = AccountSums(people=20)
    names = {split: {n for i in range(200) for n in task.on(split)[i].info["names"]} for split in ("train", "held_out")}
    assert len(names["train"]) == 14 and len(names["held_out"]) == 6 and not names["train"] & names["held_out"]
    assert {10 <= value <= 99 for part in task.balances.values() for value in part.values()} == {True}
    with pytest.raises(ValueError, match="at most 676"):
        AccountSums(people=700)


def test_two_tools_answer_in_one_trajectory():
    """Trajectory 0 is the script; trajectory 1 calls for an unknown name and calculates what is no expression. What
    tools say is masked."""
    task = AccountSums(slips=0.0)
    first, second = task[0].info["names"]
    x, y = (task.balances["train"][name] for name in (first, second))
    engine = Spoken({0: task.script(0), 1: ["?!!;", "#1+;", "5"]})
    counting = Counting()
    ctx = Context(counting, engine, POLICY, Sampling(), seed=0, iteration=0)
    rollout = ToolUse({"?": Balances(task), "#": Calculator()}, MARKS, max_turns=3)
    right, wrong = rollout.collect([(slot, counting[slot]) for slot in (0, 1)], ctx)
    assert right.output == str(x + y) and text_of(right, True) == "".join(task.script(0))
    assert text_of(right, False) == f"[{x}][{y}][{x + y}]" and text_of(wrong, False) == "[UnknownName][NotAnExpression]"
    scores = ToolReward({"exact": 1.0}).scores([right, wrong])
    assert scores == [{"calls": 3, "invalid_calls": 0, "tools": 2}, {"calls": 2, "invalid_calls": 2, "tools": 0}]


def test_balances_are_those_of_their_task():
    with pytest.raises(ValueError, match="balances are those of AccountSums alone"):
        Balances(object())
