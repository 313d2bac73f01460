"""A reward model behind a server has the scores of the model in the process, bit for bit."""

import json
import os
import subprocess
import urllib.error
import urllib.request

import pytest
import torch

import mmrl
from mmrl.__main__ import main
from mmrl.api.serving.scores import find_classifier, read_conversations
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rewards.models.learned import ClassifierReward
from mmrl.rewards.models.server import SCORE, ServerReward
from tests.policies.text.test_scorer import TINY
from tests.quick_python import quick_python
from tests.rewards.judges.episodes import group_of
from tests.tiny_recipes import QUIET, TEXT, override

TOKEN = "secret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rm")
    torch.manual_seed(0)
    ScoringPolicy(config=TINY).save_pretrained(path / "policy")
    return str(path)


@pytest.fixture(scope="module")
def url(folder):
    environment = {
        **os.environ,
        "MMRL_SERVE_TOKEN": TOKEN,
        "PYTHONPATH": os.path.dirname(os.path.dirname(mmrl.__file__)),
    }
    command = [quick_python(), "-P", "-m", "mmrl", "serve", folder, "port=0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = server.stdout.readline()
    assert f"{folder}: serving at http://127.0.0.1:" in line and "with a token" in line
    yield line.split(" at ")[1].split(" ")[0]
    server.terminate()
    assert server.wait(20) == 0


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("MMRL_SERVE_TOKEN", TOKEN)


def group(number):
    """Answers of different lengths, in a group of their own."""
    episodes = group_of(["4", "four, I think", "", f"{number} " * 9])
    for episode in episodes:
        episode.group = number
    return episodes


def test_scores_are_those_of_the_model_in_the_process(folder, url):
    local = ClassifierReward(os.path.join(folder, "policy"), device="cpu")
    episodes = [episode for number in range(5) for episode in group(number)]
    served = ServerReward(url).scores(episodes)
    expected = [score for number in range(5) for score in local(group(number))]
    assert [scores[SCORE] for scores in served] == expected
    assert episodes[0].info["counts"]["reward_model_requests"] == 5


def test_a_run_with_the_served_model_is_that_with_the_model(folder, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*(word for word in TEXT if "reward" not in word), *(word for word in QUIET if "logger" not in word),
             "trainer.logger.tensorboard=null", "trainer.max_epochs=2", "data.evaluation=null"]  # fmt: skip
    model = ["reward._target_=mmrl.rewards.models.learned.ClassifierReward", f"reward.path={folder}/policy",
             "+data.reward.device=cpu", "run_dir=one"]  # fmt: skip
    served = ["reward=server", f"reward.url={url}", "run_dir=two"]
    rewards = []
    for more in (model, served):
        assert main(["fit", *override(words, more)]) == 0
        rows = mmrl.Run(more[-1].removeprefix("run_dir=")).metrics
        rewards.append([row["rollout/reward"] for row in rows if "rollout/reward" in row])
    assert len(rewards[0]) == 2 and rewards[0] == rewards[1]


def ask(url, body, **headers):
    request = urllib.request.Request(f"{url}/score", body, {"Authorization": f"Bearer {TOKEN}", **headers})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"conversations": []}', b'{"conversations": [[]]}',
                                  b'{"conversations": [[{"role": "user"}]]}', b'{"conversations": ["text"]}',
                                  b'{"conversations": [[{"role": "user", "content": "x"}]], "tools": [1]}',
                                  b'{"conversations": [[{"role": "user", "content": [{"type": "x"}]}]]}'])  # fmt: skip
def test_a_request_of_another_form_is_answered_400_and_the_next_one_is_scored(url, body):
    status, text = ask(url, body)
    assert status == 400 and text
    good = {"conversations": [[{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]]}
    status, text = ask(url, json.dumps(good).encode())
    assert status == 200 and len(json.loads(text)["scores"]) == 1


def test_strangers_and_web_pages_are_refused(url):
    assert ask(url, b"{}", Authorization="Bearer wrong")[0] == 401
    assert ask(url, b"{}", Authorization="")[0] == 401
    assert ask(url, b"{}", Origin="http://example.org")[0] == 403


def test_too_many_conversations_are_refused():
    with pytest.raises(ValueError, match="1 to 4096"):
        read_conversations(json.dumps({"conversations": [[{"role": "user", "content": "x"}]] * 4097}))


def test_a_run_without_a_classifier_is_none(tmp_path):
    for content in ("{", "[]", '{"architectures": null}', '{"architectures": ["Qwen2ForCausalLM"]}'):
        (tmp_path / "config.json").write_text(content)
        assert find_classifier(str(tmp_path)) is None


@pytest.mark.parametrize("answer", [{"scores": [1.0]}, {"scores": [1, 2, 3, "4"]}, {"scores": None}, [1, 2, 3, 4],
                                    {"scores": [1.0, 2.0, 3.0, float("nan")]}])  # fmt: skip
def test_an_answer_of_another_form_is_no_score(answer, monkeypatch):
    reward = ServerReward("http://127.0.0.1:9", retries=0)

    async def send(*_):
        return answer

    monkeypatch.setattr(reward.client, "_send", send)
    with pytest.raises(RuntimeError, match=r"4 of 4 episodes have no score of the reward model.*no list of 4 scores"):
        reward.scores(group(0))


def test_an_address_is_needed():
    with pytest.raises(ValueError, match=r"reward.url=http://HOST:PORT"):
        ServerReward()
