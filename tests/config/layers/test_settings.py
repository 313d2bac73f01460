"""A method in a setting: what a recipe is, and what it becomes with a pretrained policy."""

import pytest
import yaml
from omegaconf import OmegaConf

from mmrl.config.compose import compose
from mmrl.config.layers.files import read_run
from mmrl.config.layers.settings import choose_setting, read_paper_setting
from mmrl.config.option_files import CONF, groups
from mmrl.core.errors import ConfigError

TOYS = [name for name in groups()["setting"] if not name.startswith(("pretrained", "smol", "paper"))]
MODEL = ("policy=text", "policy.path=somewhere")


def test_a_recipe_is_the_method_in_the_setting_that_it_names():
    named = compose(["recipe=gspo", "run_dir=same"])
    apart = compose(["method=gspo", "setting=sums", "run_dir=same"])
    assert named.choices.recipe == "gspo" and "recipe" not in apart.choices
    del named.choices["recipe"]
    assert named == apart


def test_every_recipe_names_one_method_and_one_setting_in_its_own_file():
    for file in (CONF / "recipe").rglob("*.yaml"):
        defaults = yaml.safe_load(file.read_text())["defaults"]
        groups_of = [key.split("/")[-1] for entry in defaults for key in entry]
        assert groups_of[:2] == ["method", "setting"], file


def test_a_method_has_nothing_of_a_toy():
    """Task, policy, budget, start and learning rate are the setting's."""
    for name in groups()["method"]:
        layer = read_run({"method": name, "setting": None})[-1]
        assert not {"task", "policy", "sim", "evaluation", "scheduler", "setting"} & set(layer.choices), name
        flat = OmegaConf.create({key: value for key, value in layer.keys.items() if key != "paper_setting"})
        for key in ("capture", "data.num_prompts", "data.num_minibatches", "data.task", "model.optimizer.lr",
                    "trainer.max_epochs", "trainer.callbacks.warm_start", "data.sampling.max_tokens"):  # fmt: skip
            if key == "data.num_minibatches" and layer.choices.get("learner") == "private":
                continue  # a private step is one on all rows: the algorithm's, not the setting's
            assert OmegaConf.select(flat, key) is None, f"{name}: {key}"


@pytest.mark.parametrize(
    "recipe", ["gspo", "dapo", "lp_reg", "rloo", "prime", "search_r1", "kto", "sft", "vine_ppo", "siren"]
)
def test_a_recipe_with_a_pretrained_policy_runs_in_the_pretrained_setting_and_says_so(recipe):
    words = [f"recipe={recipe}", *MODEL]
    cfg = compose(words)
    assert cfg.choices.setting == "pretrained_text" and cfg.choices.method == recipe
    assert cfg.model.optimizer.lr == 1e-6 and cfg.data.sampling.max_tokens == 512 and not cfg.capture
    assert cfg.trainer.callbacks.warm_start.stages is None
    line = choose_setting(words).line
    assert line.startswith(f"recipe={recipe} has the numbers of a small policy") and "setting=pretrained_text" in line


@pytest.mark.parametrize("recipe", ["dpo", "kto", "orpo"])
def test_a_run_without_an_evaluation_has_none_of_the_pretrained_setting(recipe):
    cfg = compose([f"recipe={recipe}", *MODEL, "task.path=pairs.jsonl"])
    assert cfg.data.evaluation is None and cfg.data.task.path == "pairs.jsonl"
    assert cfg.model.optimizer.lr == 1e-6
    with pytest.raises(ConfigError, match=r"^data\.evaluation\.count: this run has evaluation=null"):
        compose([f"recipe={recipe}", *MODEL, "evaluation.count=3"])


def test_the_task_of_the_recipe_stays_and_its_lengths_do_not():
    cfg = compose(["recipe=grpo_gridworld", *MODEL])
    toy = compose(["recipe=grpo_gridworld"])
    assert cfg.choices.task == "gridworld" and cfg.data.task == toy.data.task
    assert cfg.choices.rollout == "text_environment" and cfg.data.sampling.max_tokens == 512
    assert cfg.data.evaluation.count == 256 and cfg.data.num_prompts == 64


def test_a_task_of_the_command_line_is_not_mixed_with_that_of_the_recipe():
    cfg = compose(["recipe=grpo_graphs", *MODEL, "task=arithmetic", "task.digits=[3,3]"])
    assert cfg.choices.task == "arithmetic" and "depth" not in cfg.data.task and cfg.data.task.digits == [3, 3]


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ([*MODEL], "pretrained_text"),
        (["recipe=gspo", "policy=smollm2"], "pretrained_text"),
        (["recipe=gspo", *MODEL, "policy.lora.r=8"], "pretrained_text_lora"),
        (["recipe=grpo_counting_vlm", "policy=vlm", "policy.path=x"], "pretrained_vlm"),
        (["recipe=bradley_terry", "policy.path=x"], "pretrained_scorer"),
        (["recipe=ppo_vla", "policy=openvla", "policy.path=x"], "pretrained_vla_lora"),
        (["recipe=ppo_vla", "policy=pi0", "policy.path=x"], "pretrained_vla"),
        (["start=graphs", *MODEL], "pretrained_text"),
        (["recipe=grpo_smollm2"], "smollm2"),
        (["recipe=grpo_smollm2", "policy.path=x"], "smollm2"),
        (["recipe=gspo", "policy.path=null"], "sums"),
    ],
)
def test_the_setting_is_that_of_the_kind_of_policy(words, setting):
    assert compose(words).choices.setting == setting


@pytest.mark.parametrize("setting", TOYS)
def test_a_setting_for_small_policies_refuses_a_pretrained_one(setting):
    with pytest.raises(
        ConfigError, match=f"setting={setting} has the numbers of a small policy.*setting=pretrained_text"
    ):
        compose(["method=gspo", f"setting={setting}", *MODEL])


def test_the_numbers_of_the_paper_are_taken_and_the_command_line_comes_after_them():
    cfg = compose(["method=dapo", "setting=paper", *MODEL])
    assert (cfg.data.num_prompts, cfg.data.group_size, cfg.data.num_minibatches) == (512, 16, 16)
    assert cfg.data.sampling.max_tokens == 20480 and cfg.model.optimizer.weight_decay == 0.1
    assert compose(["method=dapo", "setting=paper", *MODEL, "data.group_size=4"]).data.group_size == 4
    assert "paper_setting" not in cfg and "setting" not in cfg


def test_the_numbers_of_an_extended_method_are_not_those_of_the_one_that_extends_it():
    assert read_paper_setting("dapo") and not read_paper_setting("apo") and read_paper_setting("dpo_online")
    with pytest.raises(ConfigError, match="method=apo has no paper_setting"):
        compose(["method=apo", "setting=paper", *MODEL])


def test_a_setting_with_a_task_replaces_that_of_the_recipe():
    cfg = compose(["recipe=gspo", "setting=gridworld"])
    assert cfg.choices.task == "gridworld" and cfg.choices.rollout == "text_environment" and "recipe" not in cfg.choices


@pytest.mark.parametrize(
    "words", [["method=papo", "setting=paper_vlm", "policy=vlm"], ["method=ppo_vla", "setting=paper_vla", "policy=pi0"]]
)
def test_the_numbers_of_a_paper_are_taken_for_every_kind_of_policy(words):
    method = words[0].removeprefix("method=")
    rate = read_paper_setting(method)["model"]["optimizer"]["lr"]
    cfg = compose([*words, "policy.path=x"])
    assert cfg.model.optimizer.lr == rate
    with pytest.raises(ConfigError, match=r"setting=paper_v"):
        compose([words[0], "setting=sums", *words[2:], "policy.path=x"])
