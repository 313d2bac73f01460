"""ZeroSearch's schedule of noise and F1 by hand, and its simulated retriever, exact and by a language model."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from mmrl.core.types import Prompt
from mmrl.methods.agents.zerosearch import ModelWriter, NoiseCurve, SimulatedSearch
from mmrl.rewards.answers.token_f1 import token_f1
from mmrl.schedules.scalars import with_scalar
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.executor import ToolExecutor
from tasks.wiki.search import NotFound, Search
from tasks.wiki.simulated import PageWriter
from tasks.wiki.task import Wiki

LAWS = [lambda: NoiseCurve(200)]
TASK = Wiki(people=60)
PROBLEM = Prompt("wiki/train/3", ({"role": "user", "content": "Who leads {answer}?"},), answer="gi")


def test_share_of_noise_by_hand():
    """p_s = 0, p_e = .5, b = 4, m = 200: p_i = (4^(i/200) - 1) / 6. 4^(1/4) = sqrt 2, 4^(1/2) = 2, 4^(3/4) = 2 sqrt 2.

    (1.414214 - 1) / 6 = .069036, 1 / 6 = .166667, (2.828427 - 1) / 6 = .304738, 3 / 6 = .5.
    """
    curve = NoiseCurve(200)
    values = [curve(i) for i in (0, 50, 100, 150, 200, 900)]
    assert values == pytest.approx([0, 0.069036, 0.166667, 0.304738, 0.5, 0.5], abs=1e-6)
    assert {NoiseCurve(9, 0.3, 0.3)(i) for i in range(12)} == {0.3}
    assert NoiseCurve(2, 1.0, 0.0, base=9)(1) == pytest.approx(0.75)  # 1 - (3 - 1) / 8


@pytest.mark.parametrize(
    "options",
    [{"iterations": 0}, {"iterations": 5, "base": 1}, {"iterations": 5, "end": 1.5}, {"iterations": 5, "base": 0}],
)
def test_curves_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match=r"NoiseCurve: .*(iterations|base|end)"):
        NoiseCurve(**options)


def test_f1_by_hand():
    """F1 of "big red dog" against "red dog": P = 2/3, R = 1, F1 = 2 (2/3) / (5/3) = .8."""
    assert token_f1("big red dog", "red dog") == pytest.approx(0.8)
    assert token_f1("the Barack Obama Jr", "Barack Obama") == pytest.approx(0.8)  # without the article
    assert token_f1("x", "y") == token_f1("", "y") == token_f1("the", "the") == 0
    assert token_f1("Red, dog!", ["cat", "the red dog"]) == 1
    assert token_f1("dog dog", "dog") == pytest.approx(2 / 3)  # the second one is not in the answer: P = 1/2
    assert token_f1("dog", []) == 0


def start(noise, prompt=PROBLEM, **options):
    return SimulatedSearch(PageWriter(TASK), noise, **options).start(prompt)


def test_useful_documents_are_those_of_the_search_and_noisy_ones_of_other_people():
    search, names = Search(TASK), list(TASK.knowledge_bases["train"].facts)
    assert [start(0.0).run(name) for name in names] == [search.run(name) for name in names]
    noisy = start(1.0)
    for name in names:
        page = noisy.run(name)
        assert page in search.pages and page.split()[0] != name
    with pytest.raises(NotFound):
        start(0.0).run("nobody")
    with pytest.raises(NotFound):
        noisy.run(" ".join(search.titles))  # a page of another person does not exist


def test_the_share_of_noisy_calls_is_the_share_and_grows_with_it():
    """2000 draws of p = .3: standard error sqrt(.21 / 2000) = .0102, limits at four of them."""
    search, names = Search(TASK), list(TASK.knowledge_bases["train"].facts)

    def noisy_calls(noise):
        tool = start(noise)
        return [tool.run(name) != search.run(name) for name in names * (2000 // len(names) + 1)][:2000]

    low, high = noisy_calls(0.3), noisy_calls(0.6)
    assert np.mean(low) == pytest.approx(0.3, abs=0.041) and np.mean(high) == pytest.approx(0.6, abs=0.044)
    assert all(b for a, b in zip(low, high) if a)


def test_calls_are_counted_in_each_episode():
    tool, name = SimulatedSearch(PageWriter(TASK), 0.5), TASK.knowledge_bases["train"].questions[0][0]
    results = [[episode.run(name) for _ in range(8)] for episode in (tool.start(PROBLEM), tool.start(PROBLEM))]
    assert results[0] == results[1] and len(set(results[0])) > 1 and tool.calls == 0
    other = tool.start(Prompt("wiki/train/4", answer="gi"))
    assert [other.run(name) for _ in range(8)] != results[0]


def test_the_share_follows_a_schedule():
    tool = SimulatedSearch(PageWriter(TASK), 0.0)
    with_scalar({"?": tool}, ["?", "noise"], 0.25)
    assert tool.noise == tool.start(PROBLEM).noise == 0.25
    with pytest.raises(ValueError, match=r"rollout\.tools: noise"):
        tool.noise = 1.5


class Replies(BaseHTTPRequestHandler):
    """A server of a language model: its status and body are set by the test, the requests are kept."""

    status, body, requests = 200, {}, []

    def do_POST(self):
        self.requests.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        content = json.dumps(self.body).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (Replies,), {"requests": []})
    with HTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield handler, f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()


def test_a_language_model_writes_the_documents(server):
    handler, url = server
    handler.body = {"choices": [{"message": {"content": "ba is led by gi"}}]}
    writer = ModelWriter(url, "writer", template="{kind}|{documents}|{question}|{answer}|{query}|{other}")
    for noise in (0.0, 1.0):
        assert SimulatedSearch(writer, noise).start(PROBLEM).run("boss {answer}") == "ba is led by gi"
    texts = [body["messages"][0]["content"] for _, body in handler.requests]
    # neither the question nor the query is a template itself
    assert texts == [f"{kind}|5|Who leads {{answer}}?|gi|boss {{answer}}|{{other}}" for kind in ("useful", "noisy")]
    assert {path for path, _ in handler.requests} == {"/v1/chat/completions"}
    assert {body["model"] for _, body in handler.requests} == {"writer"}


@pytest.mark.parametrize("status, body", [(400, {}), (200, {"choices": []}), (200, [3])])
def test_a_model_that_gives_no_documents_is_a_fault_of_the_tool(server, status, body):
    handler, url = server
    handler.status, handler.body = status, body
    tool, executor = SimulatedSearch(ModelWriter(url, "writer", retries=0)).start(PROBLEM), ToolExecutor()
    result = executor.submit(ToolCall("?", "ba"), {"?": tool})
    executor.wait([result], None)
    answer = executor.result(result)
    assert answer.fault and answer.outcome == "raised" and "/chat/completions answered" in answer.text


@pytest.mark.parametrize(
    "options, message",
    [
        ({"template": "{query}"}, r"rollout\.tools\.search\.writer\.template lacks \{kind\}"),
        ({"url": ""}, r"needs rollout\.tools\.search\.writer\.url=http://HOST:PORT/v1 .*, got url=''"),
        ({"model": ""}, "and model=''"),
        ({"documents": 0}, "documents"),
    ],
)
def test_a_writer_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ModelWriter(**{"url": "http://127.0.0.1:1/v1", "model": "writer", **options})
