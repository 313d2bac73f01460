"""Tool calls: ToolRL's and TL-Training's golden numbers, and answers that stuff, repeat or disguise calls."""

import hashlib
import json

import pytest

from mmrl.config.compose import compose
from mmrl.core.types import Prompt
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.scoring import score
from tasks.calls import Calls
from tasks.calls.match import match_calls, match_multisets, measure_correctness, name_error, parse_calls
from tasks.calls.rewards import error_penalty, tool_rl
from tasks.calls.task import read_calls
from tasks.calls.tools import TOOLS
from tests.tasks.replies import reply


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


GOLD = call("w", city="Rome", unit="C")


@pytest.mark.parametrize(
    ("predicted", "right", "reward"),
    [
        ([GOLD], [GOLD], 3),
        ([call("w", unit="C", city="Rome")], [GOLD], 3),
        ([call("w", city="Rome", unit="F")], [GOLD], 1.5),
        ([call("w", city="Rome")], [GOLD], 0.75),
        ([call("v", city="Rome", unit="C")], [GOLD], -3),
        (None, [GOLD], -3),
        ([], [GOLD], -3),
        ([GOLD], [], 0),
        ([], [], 0),
        ([GOLD, GOLD], [GOLD], 2.25),  # the name's Jaccard index is 1/2: 6 * 3.5 / 4 - 3
        ([GOLD, call("v")], [GOLD], 2.25),
        ([call("v"), GOLD], [GOLD, call("v")], 3),  # any order
        ([call("w", city="Rome", unit="C", day="x")], [GOLD], 2.5),  # 6 * (1 + 2/3 + 2) / 4 - 3
    ],
)
def test_correctness_of_toolrl_by_hand(predicted, right, reward):
    assert measure_correctness(predicted, right) == pytest.approx(reward)


def test_each_right_call_uses_a_prediction_once():
    first, second = call("w", city="Rome"), call("w", city="Oslo")
    assert match_calls([second, first], [first, second]) == (5, 5)
    # one prediction serves one of two: names 1/2, then 1 + 1
    assert match_calls([first], [first, second]) == (2.5, 5)
    assert match_multisets(["a", "a"], ["a"]) == 0.5 and match_multisets([], []) == 1


PARAMETERS = {"f": ["a", "b"], "g": ["a"]}


@pytest.mark.parametrize(
    ("predicted", "right", "kind", "penalty"),
    [
        (call("f", a=2), call("f", a=2), "right", 1),
        (call("f", a=1), call("f", a=2), "wrong_value", -0.25),
        (call("f", a="2"), call("f", a=2), "wrong_value", -0.25),
        (call("f", a=True), call("f", a=1), "wrong_value", -0.25),
        (call("f", a=1, b=2), call("f", a=1), "redundant", -0.5),
        (call("f", a=1), call("f", a=1, b=2), "missing", -0.5),
        (call("f", b=1), call("f", a=1), "redundant_missing", -1),
        (call("f", a=1, x=2), call("f", a=1), "unknown", -0.8),
        (call("f", x=1), call("f", a=1), "unknown_and_more", -1.3),
        (call("f", x=1, b=1), call("f", a=1), "unknown_redundant_missing", -1.8),
        (call("g", a=1), call("f", a=1), "wrong_tool", -1.5),
        (call("h", a=1), call("f", a=1), "unknown_tool", -2),
    ],
)
def test_errors_of_tl_training_by_hand(predicted, right, kind, penalty):
    assert name_error(predicted, right, PARAMETERS) == kind
    assert error_penalty(json.dumps(predicted), [right], PARAMETERS) == penalty


@pytest.fixture
def prompt():
    info = {"right": [GOLD], "parameters": {"w": ["city", "unit"], "v": []}}
    return Prompt("calls/train/0", answer=json.dumps(GOLD), info=info)


RIGHT = json.dumps(GOLD)


@pytest.mark.parametrize(
    ("text", "outcome", "match"),
    [
        (f"\n{RIGHT} \n", "right", 1),
        (f"[{RIGHT}]", "right", 1),
        (f"[{RIGHT}, {RIGHT}]", "wrong_calls", 0.875),
        (f"{RIGHT}\n{RIGHT}", "unparsable", 0),
        ('{"name": "v", "arguments": {}, "name": "w"}', "unparsable", 0),
        ('{"name": "w", "arguments": {"city": "Oslo", "city": "Rome", "unit": "C"}}', "unparsable", 0),
        ('{"name": "w", "arguments": {"city": "Rome", "unit": "C"}, "score": 1}', "unparsable", 0),
        ('{"name": "w", "arguments": {"city": "Rome", "unit": NaN}}', "unparsable", 0),
        ('{"name": "w", "arguments": {"city": "Rome", "unit": ["C"]}}', "wrong_value", 0.75),
        ('{"name": "Ｗ", "arguments": {}}', "unknown_tool", 0),
        ('{"name": "v", "arguments": {}}', "wrong_tool", 0),
        ('{"name": ["w", "v"], "arguments": {}}', "unparsable", 0),
        ("no call", "no_call", 0),
        ("[]", "unparsable", 0),
        ("{}", "unparsable", 0),
        ("w(city='Rome', unit='C')", "unparsable", 0),
        (f"<tool_call>{RIGHT}</tool_call>", "unparsable", 0),
        (f"<think>{RIGHT}</think>no call", "no_call", 0),
        ("[" * 100_000, "unparsable", 0),
        ("9" * 10_000, "unparsable", 0),
        ("", "unparsable", 0),
    ],
)
def test_answers(prompt, text, outcome, match):
    episode = reply(prompt, text)
    scores = Calls().score(episode)
    assert (episode.info["outcome"], scores["match"]) == (outcome, pytest.approx(match))
    assert scores["exact"] == (outcome == "right")


def test_reward_of_toolrl_adds_the_format():
    assert tool_rl(RIGHT, [GOLD], 1.0) == 4 and tool_rl("?", [GOLD], 0.0) == -3
    assert tool_rl("no call", [], 1.0) == 1 and error_penalty("no call", [], {}) == 1
    assert error_penalty(RIGHT, [], PARAMETERS) == -2


@pytest.mark.parametrize(
    ("extract", "text", "rewards"),
    [
        (None, "{right}", (4, 1)),
        ("tags", "<answer>{right}</answer>", (4, 1)),
        ("tags", "<think>no call</think>I call <answer>{right}</answer>", (4, 1)),
        ("tags", "<answer>no call</answer>", (-2, -2)),
        ("tags", "{right}", (-3, -2)),
        ("code", "```json\n{right}\n```", (4, 1)),
        ({"tags": {"tag": "call"}}, "<call>{right}</call>", (4, 1)),
    ],
)
def test_rewards_judge_what_the_extractor_finds(extract, text, rewards):
    task = Calls(extract=extract, irrelevant=0.0)
    episode = reply(task[0], text.replace("{right}", task[0].answer))
    functions = [f"tasks.calls.rewards:{name}" for name in ("tool_rl", "error_penalty")]
    score([episode], task, FunctionReward(functions, in_process=True))
    assert (episode.scores["tool_rl"], episode.scores["error_penalty"]) == rewards


@pytest.mark.parametrize(
    "text", [RIGHT, f"[{RIGHT}, {RIGHT}]", '{"name": "w", "arguments": {"city": "Rome"}}', "no call", "?"]
)
def test_the_weights_of_the_recipe_give_the_reward_of_toolrl_plus_three(prompt, text):
    weights = {name: weight for name, weight in compose(["recipe=grpo_calls"]).data.reward.weights.items() if weight}
    scores = Calls().score(reply(prompt, text))
    reward = sum(weight * scores[name] for name, weight in weights.items())
    assert reward == pytest.approx(tool_rl(text, [GOLD], scores["format"]) + 3)


def test_demonstrations_are_right_in_every_style():
    for task in (Calls(parallel=0.4, offered=5), Calls(style="schemas", extract="tags", parallel=0.3)):
        kinds = set()
        for index in range(100):
            prompt = task[index]
            kinds.add(len(prompt.info["right"]))
            scores = task.score(reply(prompt, task.demonstrate(index)))
            assert set(scores.values()) == {1.0}
            assert {c["name"] for c in prompt.info["right"]} <= set(prompt.info["parameters"])
        assert kinds == {0, 1, 2}


def test_problems_are_made_of_the_named_tools():
    names = {"weather", "play_music", "set_alarm"}
    task = Calls(tools=sorted(names), offered=2)
    assert {tool.name for i in range(50) for tool in task.problem(i).tools} == names
    with pytest.raises(ValueError, match="unknown tools"):
        Calls(tools=["weather", "rain"])


def test_requests_hold_every_argument():
    task = Calls(irrelevant=0.0, parallel=0.5)
    for index in range(200):
        prompt = task[index]
        request = prompt.messages[0]["content"].splitlines()[-1]
        for made in prompt.info["right"]:
            values = [("on" if v else "off") if isinstance(v, bool) else str(v) for v in made["arguments"].values()]
            assert all(value in request for value in values)


def test_schemas_name_their_required_parameters():
    weather = next(tool for tool in TOOLS if tool.name == "weather")
    assert weather.signature() == "weather(city: string, day?: string, unit?: string)"
    assert weather.schema()["parameters"]["required"] == ["city"]
    assert weather.schema()["parameters"]["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]


@pytest.mark.parametrize("parallel", [0.0, 0.4])
def test_no_call_of_the_held_out_split_is_trained_on(parallel):
    task, calls, shares = Calls(parallel=parallel, irrelevant=0.0), [], []
    for split in ("train", "held_out"):
        right = [task.on(split)[index].info["right"] for index in range(400)]
        calls.append({json.dumps(one, sort_keys=True) for each in right for one in each})
        shares.append(sum(len(each) == 2 for each in right) / 400)
    assert not calls[0] & calls[1]
    assert shares == pytest.approx([parallel, parallel], abs=0.07)
    assert parse_calls("no call") is None and read_calls(" no call ") == []


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({}, "f65c8186954d397f"),
        ({"style": "schemas", "offered": 5, "seed": 3}, "674bcce5d5c26abd"),
        ({"tools": ["find_flight", "buy_ticket", "set_alarm"], "offered": 2, "irrelevant": 0.0}, "ebccda9c7009caca"),
    ],
)
def test_problems_with_one_call_are_those_of_the_stored_results(options, digest):
    task = Calls(**options)
    prompts = [task.on(split)[index] for split in ("train", "held_out") for index in range(300)]
    text = json.dumps([(prompt.key, prompt.messages, prompt.answer, prompt.info) for prompt in prompts])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("options", [{"offered": 1}, {"parallel": 0.9}, {"irrelevant": -0.1}, {"style": "xml"}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="calls"):
        Calls(**options)
