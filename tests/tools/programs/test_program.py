"""Programs that reward decisions: what they give, and how what cannot be used is refused."""

import pickle
from pathlib import Path

import pytest

from mmrl.core.errors import ConfigError
from mmrl.tools.programs.program import ProgramError, RewardProgram
from mmrl.tools.programs.questions import describe_state, tabulate_parts
from mmrl.tools.programs.traces import order_share
from mmrl.tools.programs.writers import build_writer, find_program

STEPS = [({"x": 0.0}, [0.5], {"x": 1.0}), ({"x": 1.0}, [-0.5], {"x": 3.0})]


def program(body: str) -> str:
    return f"def reward(before, action, after):\n    {body}\n"


def test_the_reward_is_the_sum_of_its_parts():
    """Of the first step 1 - 0 and -0.1 * 0.5; of the second 3 - 1 and -0.1 * -0.5."""
    parts = 'return {"way": after["x"] - before["x"], "effort": -0.1 * action[0]}'
    made = RewardProgram(program(parts))
    assert made.parts(STEPS) == [{"way": 1.0, "effort": -0.05}, {"way": 2.0, "effort": 0.05}]
    assert made(STEPS) == [0.95, 2.05] and made([]) == []
    assert RewardProgram(program("return after['x']"))(STEPS) == [1.0, 3.0]
    assert pickle.loads(pickle.dumps(made))(STEPS) == [0.95, 2.05]


def test_a_program_keeps_nothing_between_decisions():
    counting = "calls = []\n" + program("calls.append(1); return len(calls)")
    assert RewardProgram(counting)(STEPS) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("def reward(before, action, after)\n    return 1", "line 1: SyntaxError"),
        ("", "no function reward"),
        ("def reward(state):\n    return 1", "no function reward"),
        ("import os\n" + program("return 1"), "line 1: it imports os"),
        ("from numpy import abs\n" + program("return 1"), "line 1: it imports numpy"),
        ("from . import x\n" + program("return 1"), "it imports None"),
        (program("return __import__('random').random()"), "line 2: it imports __import__"),
        ("(" * 2000, "reward.py"),
        ("\0", "reward.py"),
    ],
)
def test_what_is_no_reward_is_refused_before_it_runs(source, refused):
    with pytest.raises(ProgramError, match=refused):
        RewardProgram(source)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("return sin(1)", "line 2: NameError"),
        ("return after['y']", "line 2: KeyError: 'y'"),
        ("return None", "the part 'reward' is a NoneType"),
        ("return {'a': '1'}", "the part 'a' is a str"),
        ("return {'a': float('nan')}", "the part 'a' is nan"),
        ("return -1e308 * 10", "the part 'reward' is -inf"),
        ("import sys", "imports sys"),
        ("raise SystemExit", "line 2: SystemExit"),
        ("print('x' * 3_000_000)", "prints too much"),
        ("return reward(before, action, after)", "RecursionError"),
    ],
)
def test_what_fails_is_told_with_its_line(body, refused):
    with pytest.raises(ProgramError, match=refused):
        RewardProgram(program(body)).parts(STEPS)


@pytest.mark.parametrize("body", ["open('/etc/passwd')", "open('kept', 'w').write('1' * 9_000_000)"])
def test_it_reaches_no_files_of_others_and_fills_no_disk(body):
    with pytest.raises(ProgramError):
        RewardProgram(program(f"{body}; return 1")).parts(STEPS)


def test_it_does_not_go_on_for_ever():
    with pytest.raises(ProgramError, match="2 s of processor time for 2 decisions"):
        RewardProgram(program("while True: pass")).parts(STEPS)


def test_what_it_prints_is_no_reward():
    assert RewardProgram(program("print('[[9], null]'); return 1"))(STEPS) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("successes", "failures", "share"), [([5, 7], [4, 6], 0.75), ([5, 7], [1, 2], 1.0), ([3, 3], [3, 3], 0.0)]
)
def test_the_share_of_pairs_in_order(successes, failures, share):
    """Of 5 > 4, 5 > 6, 7 > 4 and 7 > 6 three hold; of equal rewards none does."""
    own = [1.0] * len(successes) + [0.0] * len(failures)
    assert order_share([*successes, *failures], own) == share


def test_episodes_of_one_score_have_no_order():
    assert order_share([1.0, 2.0], [0.0, 0.0]) is None


def test_sums_of_parts_stand_by_quarters():
    rewards = [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}, {"a": 4.0, "b": 1.0}]
    assert tabulate_parts(rewards) == "a: 1.000, 2.000, 3.000, 4.000\nb: 0.000, 0.000, 0.000, 1.000"


def test_a_state_is_described_by_its_names():
    state = {"time": 0.0, "bodies": {"cup": [0.0, 0.0, 1.0]}}
    assert describe_state(state) == "'time': float\n'bodies':\n  'cup': list of 3 floats"


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("Text.\n```python\nx\n```\nmore", "x\n"),
        ("```py\nx\n```\n```python\ny\n```", "y\n"),
        ("```\r\nx\r\n```", "x\r\n"),
        ("x = 1", None),
        ("```python x```", None),
    ],
)
def test_the_last_block_of_an_answer_is_its_program(answer, source):
    assert find_program(answer) == source


def test_files_are_answers_in_their_order(tmp_path):
    plain, fenced = tmp_path / "a.py", tmp_path / "b.md"
    plain.write_text(program("return 1"))
    fenced.write_text("So:\n```python\nx\n```\n")
    writer = build_writer({"files": [str(plain), str(fenced)]})
    assert find_program(writer.write([], 0)) == program("return 1") and find_program(writer.write([], 1)) == "x\n"
    with pytest.raises(ConfigError, match="answer 3 is asked for, and there are 2 files"):
        writer.write([], 2)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, "files: .*or url and model"),
        ({"files": []}, "names no file"),
        ({"files": ["/nowhere/a.py"]}, "/nowhere/a.py: no such file"),
        ({"url": "127.0.0.1", "model": "m"}, "http://HOST:PORT/v1"),
        ({"url": "http://x/v1", "model": "m", "colour": 1}, "colour"),
        ({"url": "http://x/v1", "model": "m", "max_tokens": 0}, "writer.max_tokens"),
    ],
)
def test_writers_that_cannot_be_used_are_refused(options, refused):
    with pytest.raises((ConfigError, ValueError), match=refused):
        build_writer(options)


def test_a_model_behind_a_server_writes(chat_server):
    url, bodies = chat_server(["```python\nx\n```"])
    writer = build_writer({"url": url, "model": "m", "max_tokens": 7})
    assert find_program(writer.write([{"role": "user", "content": "write"}], 4)) == "x\n"
    (body,) = bodies
    assert body["messages"] == [{"role": "user", "content": "write"}] and body["model"] == "m"
    assert body["max_tokens"] == 7 and body["seed"] == 4


def test_a_server_that_gives_no_text_is_an_error(chat_server):
    url, _ = chat_server([None, None])
    writer = build_writer({"url": url, "model": "m", "retries": 1, "backoff_s": 0.0})
    with pytest.raises(OSError, match=r"gave no answer.*without a text"):
        writer.write([], 0)


def test_the_programs_of_the_examples_are_rewards():
    steps = [({"position": -0.5, "velocity": 0.0}, [1.0], {"position": 0.5, "velocity": 0.02})]
    folder = Path(__file__).parents[3] / "examples" / "rewards"
    for name in ("inverted", "sparse", "dense"):
        assert RewardProgram((folder / f"{name}.py").read_text())(steps)
    with pytest.raises(ProgramError, match="'sin' is not defined"):
        RewardProgram((folder / "broken.py").read_text()).parts(steps)
