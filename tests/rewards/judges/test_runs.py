"""Runs whose only reward is a judge behind a server that fails now and then."""

import re
import threading
import time

import pytest

import mmrl
from mmrl.__main__ import main
from mmrl.config.compose import compose
from tests.rewards.judges.stub_server import StubServer
from tests.tiny_recipes import QUIET, TEXT, override

WORDS = (*(word for word in TEXT if "reward" not in word), *(word for word in QUIET if "logger" not in word),
         "trainer.logger.tensorboard=null", "trainer.check_val_every_n_epoch=1", "run_dir=run",
         "reward.judge.model=m", "reward.judge.backoff_s=0.02")  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def digits(text, mark):
    """Ten for an answer of digits alone."""
    answer = re.search(rf"<answer-{mark}>\n(.*?)\n</", text, re.DOTALL)[1]
    return f"grade-{mark}: {10 if answer.isdigit() else 2}"


def fault(n):
    """One of twenty replies is broken, one is late and one cannot be read, from the third request on."""
    return {5: "broken", 10: "late", 15: "unreadable"}.get(n % 20) if n > 1 else None


def test_a_run_goes_on_beside_faults_and_a_restart():
    """24 episodes an iteration and 4 held-out ones: each unreadable reply is an episode that is left out."""
    with StubServer(digits, fault, late_s=1.0) as stub:
        port = stub.port
        words = override(WORDS, ["reward=judge", f"reward.judge.url={stub.url}", "reward.judge.timeout_s=0.5"])
        statuses = []
        run = threading.Thread(target=lambda: statuses.append(main(["fit", *words, "trainer.max_epochs=3"])))
        run.start()
        while len(stub.requests) < 40:
            time.sleep(0.01)
    time.sleep(0.2)  # nobody listens
    with StubServer(digits, fault, late_s=1.0, port=port):
        run.join(timeout=300)
    assert statuses == [0]
    rows = mmrl.Run("run").metrics
    names = ("errors", "judge_failures", "judge_requests", "judge_retries")
    errors, failures, requests, retries = (sum(row.get(f"rollout/{name}", 0) for row in rows) for name in names)
    assert requests == 72 and errors == failures > 0 and retries > 0
    rewards = [row["rollout/reward"] for row in rows if "rollout/reward" in row]
    assert len(rewards) == 3 and all(0.2 <= reward <= 1 for reward in rewards)  # no score of 0 among them


def test_a_judge_that_never_gives_a_verdict_is_refused_before_a_model_is_built(capsys):
    with StubServer(digits, lambda n: "unreadable") as stub:
        assert main(["fit", *override(WORDS, ["reward=judge", f"reward.judge.url={stub.url}"])]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "2 of 2 episodes have no verdict" in line and "it was 'I would rather not.'" in line


@pytest.mark.parametrize("option", ["judge", "pairwise_judge", "listwise_judge", "rubric_judge", "yes_no_judge"])
def test_an_option_replaces_the_reward_and_its_weights(option):
    settings = ["reward.judge.url=http://h/v1", "reward.weights.exact=0.5"]
    reward = compose(["recipe=grpo", f"reward={option}", *settings]).data.reward
    assert reward._target_.endswith("JudgeReward") and reward.judge.url == "http://h/v1"
    assert reward.weights == {"judge": 1.0, "exact": 0.5}


@pytest.mark.parametrize("words", [["reward.judge.function=a.py:f", "reward.judge._target_=x.Scripted"],
                                   ["reward.judge={_target_: x.Scripted, function: 'a.py:f'}"]])  # fmt: skip
def test_another_judge_takes_none_of_the_arguments_of_the_first(words):
    judge = compose(["recipe=grpo", "reward=judge", *words]).data.reward.judge
    assert judge == {"_target_": "x.Scripted", "function": "a.py:f"}


def test_no_such_option(capsys):
    assert main(["fit", "recipe=grpo", "reward=juge"]) == 2
    assert "reward=juge: name a function as" in (line := capsys.readouterr().err) and " judge, listwise_judge, " in line
