"""A run's text policy behind the endpoint, in a process of its own: the same form and refusals as during training."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import mmrl
from tests.quick_python import quick_python
from tests.rollouts.agent.policies import TOOL, save_checkpoint
from tests.tiny_recipes import QUIET

ROOT = Path(__file__).parents[3]
ASK = [{"role": "user", "content": "add the numbers"}]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    checkpoint = save_checkpoint(folder / "checkpoint")
    # the run is one of an agent, by the arguments of the command line
    result = mmrl.fit(
        *("recipe=grpo", "policy=text", f"policy.path={checkpoint}", "task=arithmetic", "logger=csv"),
        "data.task._target_=tests.rollouts.agent.policies.Questions",
        *("rollout=agent", "rollout.agent=tests.rollouts.agent.agents:loop", "evaluation=agent"),
        *("data.num_prompts=2", "data.group_size=2", "data.num_minibatches=1", "sampling.max_tokens=8"),
        *("data.evaluation.count=3", "trainer.max_epochs=1", *(word for word in QUIET if "logger" not in word)),
        run_dir=str(folder / "run"),
    )
    assert result.last_metrics["rollout/agent/calls"] == 4 and "val/greedy/reward/mean" in result.last_metrics
    return folder / "run"


@pytest.fixture(scope="module")
def url(run):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [quick_python(), "-P", "-m", "mmrl", "serve", str(run), "port=0"]
    environment = {**os.environ, "PYTHONPATH": path, "MMRL_SERVE_TOKEN": "secret"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = server.stdout.readline()
    assert "serving at http://127.0.0.1:" in line and "/v1 with a token" in line
    yield line.split("serving at ")[1].split()[0]
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


def post(url, key="secret", **body):
    headers = {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read().decode()
            return response.status, text if body.get("stream") else json.loads(text)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def test_a_plain_client_gets_what_the_policy_writes(url, run):
    body = {"model": "policy", "messages": ASK, "max_tokens": 12}
    status, reply = post(url, **body, temperature=0)
    expected = mmrl.load_policy(str(run)).generate(ASK, max_tokens=12, temperature=0)
    assert status == 200 and reply["choices"][0]["message"]["content"] == expected
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 12
    # a seed is one answer, and several choices are several draws
    draws = [post(url, **body, seed=3, n=2, logprobs=True, temperature=1)[1]["choices"] for _ in range(2)]
    texts = [[choice["message"]["content"] for choice in choices] for choices in draws]
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1]
    assert len(draws[0][0]["logprobs"]["content"]) == 12
    assert post(url, **body, temperature=1)[1]["choices"] != post(url, **body, temperature=1)[1]["choices"]
    status, events = post(url, **body, temperature=0, stream=True, stream_options={"include_usage": True})
    chunks = [json.loads(line.removeprefix("data: ")) for line in events.split("\n\n") if line.startswith("data: {")]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": expected}
    assert chunks[1]["choices"][0]["finish_reason"] == "length" and chunks[2]["usage"] == reply["usage"]
    assert events.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    "change, status, param, words",
    [
        ({"model": "gpt-4o"}, 404, "model", "this endpoint serves 'policy'"),
        ({"tool_choice": "required"}, 400, "tool_choice", "a call cannot be enforced"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty", "frequency_penalty=0.5 is not supported"),
        ({"parallel_tool_calls": False}, 400, "parallel_tool_calls", "is not supported"),
        ({"reasoning_effort": "low"}, 400, "reasoning_effort", "is not read here"),
        ({"top_logprobs": 5}, 400, "top_logprobs", "top_logprobs=5"),
        ({"messages": []}, 400, "messages", "at least one message"),
        ({"messages": [{"role": "cat", "content": "a"}]}, 400, "messages[0]", "whose role is one of"),
        ({"messages": [*ASK, {"role": "tool", "content": "a"}]}, 400, "messages[1]", "needs tool_call_id"),
        ({"messages": [{**ASK[0], "mood": "good"}]}, 400, "messages", "'mood' of a message of role 'user'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages[0]", "'image_url'"),
        ({"messages": [{"role": "user", "content": "a " * 4000}]}, 400, "messages", "1024 positions"),
        ({"temperature": "hot"}, 400, "temperature", "must be a number from 0 to 2"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 400, "max_tokens", "differ"),
        ({"n": 0}, 400, "n", "a whole number from 1"),
        ({"stream_options": {}}, 400, "stream_options", "belongs to stream"),
        ({"tools": [{"type": "web"}]}, 400, "tools", "tools[0]"),
    ],
)
def test_what_is_not_read_is_refused_by_name(url, change, status, param, words):
    code, error = post(url, **{"model": "policy", "messages": ASK, **change})
    assert code == status and error["param"] == param and words in error["message"], error


def test_wrong_keys_pages_and_bodies(url):
    assert post(url, "wrong", model="policy", messages=ASK)[0] == 401
    for headers, body, status in (
        ({"Origin": "http://a.example", "Authorization": "Bearer secret"}, b"{}", 403),
        ({"Authorization": "Bearer secret"}, b"[" * 100_000, 400),
        ({"Authorization": "Bearer secret"}, b'{"model": NaN}', 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body, headers), timeout=60)
        assert caught.value.code == status
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{url}/responses", b"", {"Authorization": "Bearer secret"}))
    assert caught.value.code == 404 and "/v1/chat/completions" in json.load(caught.value)["error"]["message"]


def test_the_openai_client(url):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
    assert [model.id for model in client.models.list()] == ["policy"]
    reply = client.chat.completions.create(model="policy", messages=ASK, tools=[TOOL], max_tokens=8, temperature=0)
    history = [*ASK, reply.choices[0].message, {"role": "user", "content": "again"}]
    assert client.chat.completions.create(model="policy", messages=history, tools=[TOOL]).choices[0].message.role
    options = {"tools": [TOOL], "temperature": 0, "max_tokens": 8, "stream": True}
    stream = client.chat.completions.create(model="policy", messages=ASK, **options)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == reply.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="a call cannot be enforced"):
        client.chat.completions.create(model="policy", messages=ASK, tools=[TOOL], tool_choice="required")
    client.close()
