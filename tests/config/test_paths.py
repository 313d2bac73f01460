"""A run's relative paths mean the same wherever a command is started."""

import json
from pathlib import Path

import pytest
import yaml
from jsonargparse import Namespace

from mmrl.__main__ import main
from mmrl.config.compose import compose, to_lightning
from mmrl.config.paths import resolve_inputs
from mmrl.core.errors import ConfigError
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.tiny_recipes import QUIET, TEXT, override

OWN = ("task=dataset", "task.path=rows/q.jsonl", "task.held_out_path=rows/held.jsonl", "run_dir=runs/one",
       "trainer.max_epochs=1", "scheduler=constant")  # fmt: skip
WORDS = override([*(word for word in TEXT if not word.startswith(("task", "data.task", "data.reward"))), *QUIET], OWN)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a trained run and its rows."""
    home = tmp_path / "home"
    (home / "rows").mkdir(parents=True)
    for name, rows in (("q", range(24)), ("held", range(100, 108))):
        text = "".join(json.dumps({"question": f"{i}+0=", "answer": i}) + "\n" for i in rows)
        (home / "rows" / f"{name}.jsonl").write_text(text)
    monkeypatch.chdir(home)
    assert main(["fit", *WORDS]) == 0
    return home


def test_a_run_is_resumed_and_measured_from_another_folder(home, tmp_path, monkeypatch):
    task = yaml.safe_load((home / "runs/one/config.yaml").read_text())["data"]["init_args"]["task"]["init_args"]
    assert task["path"] == str(home / "rows/q.jsonl") and task["image_folder"] is None
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    run = "../home/runs/one"
    assert main(["evaluate", run, "count=4"]) == 0
    resumed = ["--config", f"{run}/config.yaml", "--ckpt_path", f"{run}/checkpoints/last.ckpt"]
    assert main(["fit", *resumed, "--trainer.max_epochs=2"]) == 0
    assert read_checkpoint(str(home / "runs/one/checkpoints/last.ckpt"), False)["loops"]["fit_loop"]["epoch_progress"][
        "current"]["processed"] == 2  # fmt: skip
    assert list(other.iterdir()) == []


def test_only_what_exists_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    for name in ("a.jsonl", "run/log.pt"):
        Path(name).touch()
    task = Namespace(path="a.jsonl", held_out_path="org/name", name="a.jsonl", parts={"b": Namespace(path="a.jsonl")})
    config = Namespace(task=task, rollout=Namespace(path="run/log.pt"), names=["a.jsonl", Namespace(path="x\0")])
    resolve_inputs(config, "run")
    absolute = str(tmp_path / "a.jsonl")
    assert (task.path, task.held_out_path, task.name) == (absolute, "org/name", "a.jsonl")
    assert task.parts["b"].path == absolute and config.rollout.path == "run/log.pt"


def test_the_file_of_an_agent_is_made_absolute_and_brings_its_reward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_agent.py").write_text("def run(prompt, base_url, model, api_key):\n    return 1\n")
    words = ["recipe=grpo", "rollout=agent", "rollout.agent=my_agent.py:run", "evaluation=agent"]
    data = to_lightning(compose(words))["data"]["init_args"]
    rollouts = (data["rollout"], data["evaluation"]["init_args"]["rollout"])
    assert [part["init_args"]["agent"] for part in rollouts] == [f"{tmp_path / 'my_agent.py'}:run"] * 2
    assert data["reward"]["class_path"] == "mmrl.rewards.returned.ReturnedReward"
    other = compose([*words, "reward=my_agent.py:run"]).data.reward
    assert other.functions == [f"{tmp_path / 'my_agent.py'}:run"]
    with pytest.raises(ConfigError, match=r"rollout\.agent=none\.py:run: there is no file"):
        compose(["recipe=grpo", "rollout=agent", "rollout.agent=none.py:run"])
