import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import mmrl
from mmrl.core.rng import Noise
from tests.api.test_training import QUIET, small


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return mmrl.fit(*small(), run_dir=tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def vla(tmp_path_factory):
    keys = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    return mmrl.fit("recipe=demo_vla", *QUIET, run_dir=tmp_path_factory.mktemp("vla"), **keys)


def test_greedy_completions_are_those_of_transformers(text):
    model, tokenizer = (kind.from_pretrained(text.policy) for kind in (AutoModelForCausalLM, AutoTokenizer))
    policy = text.load_policy()
    for index in range(4):
        messages = policy.task[index].messages
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        written = model.generate(**ids, do_sample=False, max_new_tokens=5)[0, ids["input_ids"].shape[1] :]
        assert policy.generate(messages, max_tokens=5) == tokenizer.decode(written, skip_special_tokens=True)


def test_completions_match_an_expression(text):
    policy = text.load_policy(decode="sample")
    assert set(policy.generate("7=", n=8, regex="yes|no")) <= {"yes", "no"}
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    schema["x-guidance"] = {"whitespace_flexible": False}
    assert json.loads(policy.generate("7=", json_schema=schema, max_tokens=12, temperature=0))["n"] in (1, 2)
    with pytest.raises(ValueError, match=r"sampling\.regex"):
        policy.generate("7=", regex="(")


def test_draws_depend_on_the_seed_alone(text):
    first, same = (text.load_policy(decode="sample", seed=3).generate("7=", n=8) for _ in range(2))
    other = text.load_policy(decode="sample", seed=4).generate("7=", n=8)
    assert first == same != other and len(set(first)) > 1
    policy = text.load_policy(seed=3)
    assert (
        len(set(policy.generate("7=", n=4, temperature=0))) == 1
        and policy.generate("7=", n=8, temperature=1.0) != first
    )


def test_a_vla_acts_in_its_simulator_as_its_policy_says(vla):
    policy = vla.load_policy()
    env = policy.make_env()
    observation, info = env.reset(seed=5)
    action = policy.act(observation)
    columns = policy.policy.collate([policy.policy.encode(observation)])
    with torch.no_grad():
        expected = policy.policy.act(columns, policy.sampling, Noise([0])).output[0]
    assert policy.sampling.decode == "mean" and np.array_equal(action, expected)
    assert action.shape == env.action_space.shape and isinstance(observation["instruction"], str)
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (0.0, False, False) and info["executed"] == len(action)
    env.close()


def test_many_observations_give_the_actions_of_each(vla):
    policy = vla.load_policy()
    env = policy.task.sim.make(2)
    observations, _ = env.reset(seed=[5, 6])
    actions = policy.act_batch(observations)
    rows = [policy.act({name: rows[i] for name, rows in observations.items()}) for i in range(2)]
    assert np.allclose(actions, rows, atol=1e-5) and not np.allclose(actions[0], actions[1])
    env.close()


def test_episodes_are_those_of_the_seed(vla):
    env = vla.load_policy().make_env()
    first, again, other = (env.reset(seed=seed)[0]["image"] for seed in (7, 7, 8))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    env.close()


def test_another_simulator_than_in_training_is_refused(vla):
    file = vla.folder / "contract.json"
    before = file.read_text()
    file.write_text(json.dumps(json.loads(before) | {"renderer": "none"}))
    try:
        with pytest.raises(mmrl.ConfigError, match="1 entries differ from"):
            vla.load_policy().make_env()
    finally:
        file.write_text(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "best"}, "no checkpoint 'best'"),
        ({"decode": "nope"}, "decode=nope: must be sample, argmax, mean or one of"),
        ({"decode": "mean"}, "decode=mean"),
    ],
)
def test_options_that_cannot_be_used_are_refused(text, options, message):
    with pytest.raises(mmrl.ConfigError, match=message):
        text.load_policy(**options)


def test_a_text_run_has_no_environment(text):
    with pytest.raises(mmrl.ConfigError, match="has no simulator; use generate"):
        text.load_policy().make_env()


def test_an_environment_that_is_not_registered_is_one_line_of_error(text):
    policy = text.load_policy()
    policy._task = {
        "class_path": "sims.task.SimTask",
        "init_args": {"sim": {"class_path": "sims.gym.GymSim", "init_args": {"id": "elsewhere:mine/Lake-v0"}}},
    }
    with pytest.raises(mmrl.ConfigError, match=r"^sim\.id='elsewhere:mine/Lake-v0'.* No module named 'elsewhere'"):
        policy.make_env()
