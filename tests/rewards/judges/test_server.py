"""The judge behind OpenAI's interface: retries, limits, cache, keys, log-probs and pictures."""

import math
import re
import threading
import time

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.pointwise import Pointwise, YesNo
from mmrl.rewards.judges.server import ServerJudge
from tests.rewards.judges.episodes import group_of
from tests.rewards.judges.stub_server import StubServer

ANSWERS = [str(n) for n in range(8)]


def grade(text, mark):
    """The number that was answered."""
    answer = re.search(rf"<answer-{mark}>\n(.*?)\n</", text, re.DOTALL)[1]
    return f"Fine.\ngrade-{mark}: {answer}"


def verdicts(stub, form=None, answers=ANSWERS, **settings):
    judge = ServerJudge(**{"url": stub.url, "model": "m", "backoff_s": 0.01, **settings})
    return judge.judge((form or Pointwise()).ask(group_of(answers))), judge


def test_grades_and_counts():
    with StubServer(grade) as stub:
        grades, judge = verdicts(stub, price=(1e6, 2e6))
    assert grades == [n / 10 for n in range(8)]
    assert all(body["model"] == "m" and body["temperature"] == 0 for body in stub.requests)
    tokens = judge.counts["prompt_tokens"], judge.counts["completion_tokens"]
    assert judge.counts["requests"] == 8 and not judge.counts["failures"] and min(tokens) > 0
    assert judge.counts["cost"] == pytest.approx(tokens[0] + 2 * tokens[1])


@pytest.mark.parametrize("fault", ["broken", "late", 500, 503, 429, 408])
def test_a_passing_fault_is_met_by_another_request(fault):
    with StubServer(grade, lambda n: fault if n < 3 else None) as stub:
        grades, judge = verdicts(stub, timeout_s=0.5)
    assert grades == [n / 10 for n in range(8)] and judge.counts["retries"] == 3


@pytest.mark.parametrize("fault, reason", [("broken", "no JSON"), ("deep", "no JSON"),
                                           ("late", "did not answer within 0.2 s"),
                                           (500, "answered 500"), (401, "answered 401"), (404, "answered 404"),
                                           ("unreadable", "cannot be read")])  # fmt: skip
def test_a_lasting_fault_is_a_failure_of_its_question(fault, reason):
    with StubServer(grade, lambda n: fault) as stub:
        grades, judge = verdicts(stub, timeout_s=0.2, retries=1, answers=["1", "2"])
    assert [isinstance(each, NoAnswer) and reason in each.reason for each in grades] == [True, True]
    again = fault not in (401, 404, "unreadable")  # what is wrong with the request stays wrong
    assert len(stub.requests) == (4 if again else 2) and judge.counts["failures"] == 2


def test_an_unreadable_reply_is_asked_for_again_where_it_is_drawn():
    with StubServer(grade, lambda n: "unreadable" if n == 0 else None) as stub:
        grades, _ = verdicts(stub, answers=["1"], temperature=0.7)
    assert grades == [0.1] and len(stub.requests) == 2


def test_nobody_is_there():
    grades, _ = verdicts(type("Nobody", (), {"url": "http://127.0.0.1:9/v1"}), answers=["1"], retries=1)
    assert isinstance(grades[0], NoAnswer) and re.search(
        r"127.0.0.1:9/v1/.* does not answer.*2 times", grades[0].reason
    )


def test_a_server_that_starts_again():
    with StubServer(grade) as stub:
        port = stub.port
    later = threading.Thread(target=time.sleep, args=(0.4,))
    later.start()
    results = []
    asking = threading.Thread(target=lambda: results.append(verdicts(stub, backoff_s=0.1)[0]))
    asking.start()
    later.join()
    with StubServer(grade, port=port):
        asking.join()
    assert results == [[n / 10 for n in range(8)]]


def test_no_more_requests_than_allowed_are_under_way():
    running, most, lock = [0], [0], threading.Lock()

    def answer(text, mark):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return grade(text, mark)

    with StubServer(answer) as stub:
        verdicts(stub, max_requests=3)
    assert most[0] == 3


def test_the_cache_answers_what_was_asked_before(tmp_path):
    cache = str(tmp_path / "replies" / "judge.sqlite")
    with StubServer(grade, lambda n: "unreadable" if n == 0 else None) as stub:
        verdicts(stub, cache=cache, max_requests=1)
        grades, judge = verdicts(stub, cache=cache)  # the unreadable reply was not stored
        assert grades == [n / 10 for n in range(8)] and len(stub.requests) == 9
        assert judge.counts["cached"] == 7 and judge.counts["cost"] == 0
        for settings in ({"model": "other"}, {"temperature": 0.5}, {"max_tokens": 9}, {"options": {"top_p": 0.9}}):
            before = len(stub.requests)
            verdicts(stub, cache=cache, **settings)
            assert len(stub.requests) == before + 8


def test_a_file_that_is_no_cache_is_named(tmp_path):
    (tmp_path / "cache").write_text("no table" * 200)
    with (
        StubServer(grade) as stub,
        pytest.raises(ConfigError, match=r"reward.judge.cache=.*/cache: file is not a data"),
    ):
        verdicts(stub, cache=str(tmp_path / "cache"))


def test_the_key_of_the_environment_is_sent(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with StubServer(grade) as stub:
        verdicts(stub, answers=["1"])
        monkeypatch.setenv("OTHER_KEY", "secret")
        verdicts(stub, answers=["1"], key_variable="OTHER_KEY")
    assert [headers.get("Authorization") for headers in stub.headers] == [None, "Bearer secret"]


def test_log_odds_of_the_first_token():
    with StubServer(grade) as stub:
        stub.top_logprobs = [
            {"token": t, "logprob": math.log(p)} for t, p in [("Yes", 0.5), (" yes", 0.1), ("No", 0.3)]
        ]
        assert verdicts(stub, YesNo(), ["1"])[0] == [pytest.approx(math.log(0.6 / 0.3))]
        stub.top_logprobs = stub.top_logprobs[:2]  # no is not listed: at most as likely as the last one
        assert verdicts(stub, YesNo(), ["1"])[0] == [pytest.approx(math.log(0.6 / 0.1))]
        stub.top_logprobs = [{"token": "Well", "logprob": -0.1}]
        assert "none of" in verdicts(stub, YesNo(), ["1"], retries=0)[0][0].reason
        stub.top_logprobs = None
        assert "gives no log-probs" in verdicts(stub, YesNo(), ["1"])[0][0].reason


def test_pictures_are_sent_before_the_text():
    group = group_of(["1"])
    group[0].prompt = type(group[0].prompt)("t/train/0", group[0].prompt.messages, (np.zeros((2, 2, 3), np.uint8),))
    with StubServer(grade) as stub:
        ServerJudge(stub.url, "m").judge(Pointwise().ask(group))
    picture, text = stub.requests[0]["messages"][0]["content"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,") and "What is 2 + 2?" in text["text"]


@pytest.mark.parametrize("settings", [{}, {"url": "localhost:1", "model": "m"}, {"url": "http://a/v1"}])
def test_an_address_and_a_model_are_needed(settings):
    with pytest.raises(ValueError, match=r"reward.judge.url=http://HOST:PORT/v1 and"):
        ServerJudge(**settings)
