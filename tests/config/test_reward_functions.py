"""The key `reward`: paths of functions in Hydra's grammar, which replace data.reward with its weights."""

import pytest
from omegaconf import OmegaConf

from mmrl.config.compose import compose, finish, to_lightning
from mmrl.core.errors import ConfigError

FUNCTION = "mmrl.rewards.function.FunctionReward"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "rewards.py").write_text("def score(completion):\n    return 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reward(*arguments: str) -> dict:
    return OmegaConf.to_container(compose(arguments).data.reward)


def test_a_function_replaces_the_weighted_sum_and_its_weights(folder):
    expected = {"_target_": FUNCTION, "functions": [f"{folder}/rewards.py:score"]}
    assert reward("recipe=grpo", "reward=rewards.py:score") == expected
    assert reward("recipe=grpo", f"reward={folder}/rewards.py:score") == expected
    assert reward("recipe=demo_vla", "reward=rewards.py:score") == expected  # of a recipe with weights of its own


@pytest.mark.parametrize("flipped", [False, True])
def test_several_functions_have_weights(flipped):
    arguments = ["reward=[rewards.py:score,package.module:brevity, my.module.style]",
                 "reward.weights={brevity: 0.1, exact: 2}", "reward.timeout_s=5", "reward.weights.style=3"]  # fmt: skip
    node = reward("recipe=grpo", *(reversed(arguments) if flipped else arguments))
    assert node["functions"][1:] == ["package.module:brevity", "my.module.style"]
    assert node["weights"] == {"brevity": 0.1, "exact": 2, "style": 3} and node["timeout_s"] == 5


def test_weights_without_functions_still_change_the_weighted_sum():
    node = reward("recipe=grpo", "reward.weights.format=0.1")
    assert node == {"_target_": "mmrl.rewards.compose.WeightedSum", "weights": {"exact": 1.0, "format": 0.1}}


def test_a_class_replaces_the_functions_of_a_recipe():
    cfg = OmegaConf.merge(compose(["recipe=grpo"]), {"reward": "rewards.py:score"})
    cfg.data.reward = {"_target_": "my.Reward"}
    assert finish(cfg, {}, ["reward._target_=my.Reward"]).data.reward == {"_target_": "my.Reward"}


@pytest.mark.parametrize(
    "value",
    ["rewards.py:score", ["rewards.py:score"], {"functions": "rewards.py:score"}, {"functions": ["rewards.py:score"]}],
    ids=str,
)
def test_a_recipe_names_functions_under_the_same_key(folder, value):
    cfg = OmegaConf.merge(compose(["recipe=grpo"]), {"reward": value})
    node = finish(cfg, {}, ["data.reward.weights.score=2"]).data.reward
    assert node == {"_target_": FUNCTION, "functions": [f"{folder}/rewards.py:score"], "weights": {"score": 2}}


def test_null_takes_the_functions_of_a_recipe_out():
    assert reward("recipe=grpo", "reward=null")["weights"] == {"exact": 1.0}


def test_held_out_episodes_show_the_reward_and_each_score():
    evaluators = to_lightning(compose(["recipe=grpo", "reward=rewards.py:score"]))["data"]["init_args"]["evaluation"][
        "init_args"
    ]["evaluators"]
    assert {"exact", "reward", "scores"} == set(evaluators)
    assert "reward" not in compose(["recipe=grpo"]).data.evaluation.evaluators
    assert compose(["recipe=grpo", "reward=rewards.py:score", "data.evaluation=null"]).data.evaluation is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reward=score"], r"reward=score: name a function as rewards\.py:score"),
        (["reward=nope.py:score"], "there is no file .*/nope.py"),
        (["reward=3"], "reward=3: name one function or a list of them"),
        (["reward=[]"], r"reward=\[\]: name one function"),
        (["reward={weights: {a: 1}}"], "name one function or a list"),
    ],
)
def test_what_names_no_function_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        compose(["recipe=grpo", *arguments])
