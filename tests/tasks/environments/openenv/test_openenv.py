"""Environments of OpenEnv: against a server that speaks as one was seen to speak, and against the package itself."""

import copy
import os
import random
import sys
from pathlib import Path

import pytest

from mmrl.core.types import Context, Prompt, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.environment import EnvironmentRollout
from tasks.openenv import OpenEnv
from tasks.openenv.server import OpenEnvServer
from tasks.openenv.task import Problem
from tests.policies.text.oracle import TINY
from tests.tasks.environments.openenv.stand_in import SCHEMA, Server

PYTHON = os.environ.get("MMRL_OPENENV_PYTHON")
"""Of an environment with openenv 0.10; None without one."""


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def play(task, seed):
    """Guess by halves, from a prompt of a seed; the number of `random.Random(seed)` is the oracle."""
    environment = task.make_environment()
    step, least, most = environment.reset(Prompt("guess", info={"problem": Problem(seed)})), 1, 9
    assert step.text == "\na number of 1 to 9\n>" and step.reward == 0 and not step.done
    while not step.done:
        guess = (least + most) // 2
        step = environment.step(str(guess))
        least, most = (guess + 1, most) if "larger" in step.text else (least, guess - 1)
    environment.close()
    return guess, step


def check_game(task):
    for seed in range(4):
        number, last = play(task, seed)
        assert number == random.Random(seed).randint(1, 9)
        assert (last.reward, last.terminated, last.scores, last.text) == (1.0, True, {"exact": 1.0}, "\nright\n>")
    environment = task.make_environment()
    environment.reset(task[0])
    wrong = environment.step("nine")
    assert not wrong.valid and not wrong.done and wrong.scores == {"exact": 0.0}
    assert wrong.text.startswith("\nThe action was not taken: guess: Input should be a valid integer")
    with pytest.raises(RuntimeError, match=r"answered a step with EXECUTION_ERROR: zero is no number"):
        environment.step("0")
    assert environment.reset(task[0]).text == "\na number of 1 to 9\n>"  # in a session of its own
    environment.close()
    environments = [task.make_environment() for _ in range(4)]
    for environment in environments[:3]:
        environment.reset(task[0])
    with pytest.raises(RuntimeError, match=r"all its 3 sessions in use: set rollout\.max_concurrent"):
        environments[3].reset(task[0])
    for environment in environments:
        environment.close()


def test_a_game_over_the_protocol(server):
    task = OpenEnv(url=server.url, max_turns=9)
    assert task.explain(task.problem(0)) == "Guess a number.\nAn action is guess (integer)."
    check_game(task)


def test_the_session_ends_with_the_last_turn(server):
    task = OpenEnv(url=server.url, max_turns=2)
    environment = task.make_environment()
    environment.reset(task[0])
    environment.step("x")
    assert environment.session is not None
    environment.step("y")
    assert environment.session is None


def test_episodes_of_the_rollout_and_failures_that_are_counted(server):
    task = OpenEnv(url=server.url, max_turns=3)
    rollout = EnvironmentRollout(max_concurrent=3, history=1)
    policy = TextPolicy(config=dict(TINY)).eval()
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(max_tokens=1, regex="[0-9]"), seed=0, iteration=0, group_size=4)
    episodes = rollout.collect([(slot, task[slot]) for slot in range(4)], ctx)
    rollout.close()
    actions = [turn.completion.output for episode in episodes for turn in episode.turns]
    assert sorted(actions) == sorted(action["guess"] for action in server.actions) and server.most_open <= 3
    for episode in episodes:
        number = random.Random(episode.prompt.info["problem"].seed).randint(1, 9)
        guesses = [turn.completion.output for turn in episode.turns]
        if "0" in guesses:
            assert episode.ended == "error" and "zero is no number" in episode.info["error"]
        else:
            assert episode.info["scores"]["exact"] == float(guesses[-1] == str(number))
            assert [turn.reward for turn in episode.turns] == [float(guess == str(number)) for guess in guesses]
    assert {"error"} < {episode.ended for episode in episodes}


def test_actions_of_several_fields_are_json_objects(server):
    schema = copy.deepcopy(SCHEMA)
    schema["action"]["properties"]["reason"] = {"type": "string"}
    schema["action"]["required"].append("reason")
    other = Server(schema=schema)
    task = OpenEnv(url=other.url)
    assert task.explain(task.problem(0)).endswith("guess (integer), reason (string) as a JSON object.")
    environment = task.make_environment()
    environment.reset(task[0])
    assert environment.step('{"guess": 10, "reason": "why not"}').text == "\nsmaller\n>"
    for broken in ("10", "{", '{"guess": 1, "guess": 2}'):
        assert not environment.step(broken).valid
    assert other.actions == [{"guess": 10, "reason": "why not"}]
    environment.close()
    other.close()


def test_words_of_a_field_are_admissible_actions():
    schema = copy.deepcopy(SCHEMA)
    schema["action"]["properties"]["guess"] = {"enum": ["1", "2"], "type": "string"}
    other = Server(schema=schema)
    task = OpenEnv(url=other.url)
    assert task.make_environment().reset(task[0]).admissible_actions == ("1", "2")
    other.close()


def test_what_cannot_be_played_is_refused(server):
    with pytest.raises(ValueError, match=r"give one of task\.url=http://HOST:PORT.* and task\.server=MODULE:APP"):
        OpenEnv()
    with pytest.raises(ValueError, match=r"action='word' is no field of an action, which has \['guess'\]"):
        OpenEnv(url=server.url, action="word")
    with pytest.raises(ValueError, match=r"no program python='/no/python'"):
        OpenEnv(server="guess:app", python="/no/python")
    with pytest.raises(ValueError, match=r"schema gives no answer of an OpenEnv server"):
        OpenEnv(url="http://127.0.0.1:9", timeout_s=0.1)
    with pytest.raises(ValueError, match=r"server='nowhere:app' under .* ended with status 1; .*task.python="):
        OpenEnv(server="nowhere:app", python=sys.executable)
    environment = OpenEnv(url=server.url, success_field="solved").make_environment()
    with pytest.raises(RuntimeError, match=r"task\.success_field='solved' is not in the observation, which has"):
        environment.reset(OpenEnv(url=server.url)[0])
    environment.close()


def test_an_environment_that_ignores_its_seed_is_refused():
    other = Server(seeded=False)
    task = OpenEnv(url=other.url)
    environment = task.make_environment()
    environment.reset(task[0])
    with pytest.raises(RuntimeError, match=r"two first observations for seed \d+.*task\.repeatable=false"):
        environment.reset(task[0])
    environment.close()
    other.close()


@pytest.mark.skipif(PYTHON is None, reason="MMRL_OPENENV_PYTHON names no Python with openenv")
@pytest.mark.slow
def test_an_environment_of_the_package_runs_unchanged(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    task = OpenEnv(server="guess:app", python=PYTHON, max_turns=9)
    check_game(task)
    [server] = [server for (name, _), server in OpenEnvServer.running.items() if name == "guess:app"]
    server.close()
    assert task.find_url() != server.url  # one that has ended is started again
    check_game(OpenEnv(url=task.find_url()))
