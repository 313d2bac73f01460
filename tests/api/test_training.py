import gymnasium
import numpy as np
import pytest
import torch
import yaml

import mmrl
from mmrl.__main__ import main
from mmrl.core.errors import ConfigError
from mmrl.policies.text.policy import TextPolicy
from mmrl.runs.checkpoint_file import read_weights
from tests.api.reward_functions import brevity
from tests.tiny_recipes import QUIET, TEXT, Alternating, Counting, override

QUIET = tuple(word for word in QUIET if "logger" not in word)
SMALL = (
    *(word for word in TEXT if "reward" not in word),
    *QUIET,
    "trainer.logger.tensorboard=null",
    "trainer.max_epochs=1",
)


def small(*more: str) -> list[str]:
    return override(SMALL, more)


def weights(run: mmrl.Run) -> dict[str, torch.Tensor]:
    return read_weights(str(run.checkpoint), False)["state_dict"]


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


def test_a_run_is_that_of_the_command(tmp_path):
    run = mmrl.fit(*small(), run_dir=tmp_path / "python")
    assert main(["fit", *small(f"run_dir={tmp_path / 'command'}")]) == 0
    assert_equal(weights(run), weights(mmrl.Run(tmp_path / "command")))
    assert run.folder == tmp_path / "python" and (run.policy / "config.json").is_file()
    assert run.metrics[-1]["iterations"] == 1 and 0 <= run.last_metrics["rollout/score/digits"] <= 1


def test_a_function_of_a_module_is_a_reward_that_the_file_names(tmp_path):
    run = mmrl.fit(*small(), reward=brevity, run_dir=tmp_path / "first", trainer={"check_val_every_n_epoch": 1})
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert config["data"]["init_args"]["reward"] == {
        "class_path": "mmrl.rewards.function.FunctionReward",
        "init_args": {
            "functions": ["tests.api.reward_functions.brevity"],
            "weights": None,
            "timeout_s": 60.0,
            "in_process": False,
            "max_failures": 0,
        },
    }
    assert 0 < run.last_metrics["rollout/reward"] <= 1.5
    assert 0 < run.last_metrics["val/greedy/reward/mean"] <= 1.5
    assert run.last_metrics["val/greedy/scores/brevity"] == run.last_metrics["val/greedy/reward/mean"]
    again = mmrl.fit(run.folder / "config.yaml", run_dir=tmp_path / "again")
    assert_equal(weights(run), weights(again))


def test_a_run_with_objects_of_the_program_is_resumed_by_passing_them_again(tmp_path):
    def reward(completion, answer):
        return len(set(completion)) / 10  # differs within almost every group, so that every iteration learns

    keys = {"reward": reward, "scheduler": "constant"}
    three = small("trainer.max_epochs=3")
    whole = mmrl.fit(*three, run_dir=tmp_path / "whole", **keys)
    part = mmrl.fit(*small("trainer.max_epochs=1"), run_dir=tmp_path / "part", **keys)
    before = weights(part)
    part = mmrl.fit(*three, run_dir=tmp_path / "part", ckpt_path=part.checkpoint, **keys)
    assert_equal(weights(whole), weights(part))
    assert any(not torch.equal(value, before[name]) for name, value in weights(part).items())
    assert [row["iterations"] for row in part.metrics if "rollout/reward" in row] == [1, 2, 3]


@pytest.mark.parametrize(("length", "error"), [(0, ConfigError), (2, RuntimeError)], ids=["always", "in the run"])
def test_a_failing_reward_function_ends_the_run_by_its_name(length, error, tmp_path):
    def percent(completion, answer):
        return 100 / 0 if len(completion) >= length else 0

    with pytest.raises(error, match=r"reward function .*percent\S* raised ZeroDivisionError"):
        mmrl.fit(*small(), reward=percent, run_dir=tmp_path)
    assert not (tmp_path / "policy").exists()


def test_a_list_of_problems_is_a_task_with_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (16, 16, 3), dtype=np.uint8) for _ in range(6)]
    problems = [
        {"question": "Bright?", "answer": "yes" if image.mean() > 127 else "no", "image": image} for image in images
    ]
    words = [word for word in small() if not word.startswith(("recipe", "task=", "policy", "data.task", "data.reward"))]
    run = mmrl.fit(*words, recipe="grpo_digits_vlm", task=problems, reward=brevity, run_dir="run")
    task = yaml.safe_load((run.folder / "config.yaml").read_text())["data"]["init_args"]["task"]["init_args"]
    assert task["path"].startswith(str(tmp_path / "runs" / "problems")) and task["images"] == "image"
    policy = run.load_policy()
    assert np.array_equal(policy.task.on("train")[0].images[0].shape, (16, 16, 3))
    assert isinstance(policy.generate("Bright?", images=images[:1]), str)


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([{"question": "a"}], "column 'answer' is missing"),
        (["a"], r"task\[0\] must be a mapping of question, answer, image, got str"),
        ([{"question": "a", "answer": 1, "picture": 2}], r"task\[0\] has 'picture'"),
        ([{"question": "a", "answer": 1, "image": np.zeros((4, 4))}], r"task\[0\]: the image must be"),
        ([{"question": "a", "answer": object()}], r"task\[0\]: .* not JSON serializable"),
    ],
)
def test_problems_that_cannot_be_used_are_refused(problems, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        mmrl.fit("recipe=grpo", *QUIET, task=problems, run_dir="run")


@pytest.mark.parametrize(
    ("words", "keys", "message"),
    [
        (["recipe=nope"], {}, "recipe=nope: no such recipe"),
        ([], {"optimizer": {"lr": float("nan")}}, "optimizer.lr"),
        ([], {"nope": 1}, "nope: unknown key"),
        (["trainer.callbacks.warm_start.stages={sft: ['recipe=sft']}"], {"task": Alternating()}, "task"),
        ([], {"overwrite": True, "ckpt_path": "x"}, "give either ckpt_path"),
    ],
)
def test_what_the_command_refuses_is_a_config_error(words, keys, message, tmp_path):
    with pytest.raises(mmrl.ConfigError, match=message):
        mmrl.fit(*small(*words), run_dir=tmp_path, **keys)


def test_warm_start_stages_do_not_begin_without_the_object(tmp_path):
    class Here(Counting):
        """A task that no other process can import."""

    with pytest.raises(mmrl.ConfigError, match=r"stages \['sft'\] run in processes of their own"):
        mmrl.fit(
            *small("trainer.callbacks.warm_start.stages={sft: ['recipe=sft']}"), task=Here(), run_dir=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("made", [False, True], ids=["id", "function"])
def test_a_simulator_is_a_gymnasium_id_or_a_function(made, tmp_path):
    def cart_pole() -> gymnasium.Env:
        return gymnasium.make("CartPole-v1", max_episode_steps=7)

    keys = {
        "rollout": {"num_envs": 2, "horizon": 8},
        "data": {"evaluation": {"count": 2}},
        "trainer": {"max_epochs": 1},
    }
    run = mmrl.fit("recipe=ppo_control", *QUIET, sim=cart_pole if made else "CartPole-v1", run_dir=tmp_path, **keys)
    policy = run.load_policy()
    env = policy.make_env()
    observation, _ = env.reset(seed=3)
    for step in range(8):  # noqa: B007
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        assert reward == 1 and observation.shape == (4,)
        if terminated or truncated:
            break
    assert truncated == made and (step == 6) == made
    env.close()


def test_a_policy_that_the_program_built_is_trained(tmp_path):
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 4, "max_position_embeddings": 256}  # fmt: skip
    policy = TextPolicy(config={"model_type": "qwen2", **shape}, value_head=True)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    words = [word for word in small("recipe=ppo_text") if not word.startswith("policy")]
    run = mmrl.fit(*words, policy=policy, run_dir=tmp_path)
    assert any(not torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    assert_equal(
        {f"policy.{n}": v for n, v in policy.state_dict().items()},
        {n: v for n, v in weights(run).items() if n.startswith("policy.")},
    )
