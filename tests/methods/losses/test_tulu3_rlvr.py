"""Reward, KL penalty and value model of RLVR on numbers worked by hand, as the method's configuration names them."""

import copy
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForSequenceClassification

from mmrl.annotators.kl_penalty import KLPenalty
from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling
from mmrl.methods.losses.tulu3_rlvr import (
    ModelValue,
    ModelValues,
    ValueModel,
    VerifiableReward,
    build_value_model,
)
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from tests.laws.example import Example

LAWS = [
    *(Example(ModelValue(clip, model="blind"), per_row) for clip in (None, 0.1) for per_row in (False, True)),
    Example(ModelValues(model="teacher"), scores=True),
]
SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZE |= {"num_key_value_heads": 2, "max_position_embeddings": 64}
CONFIG = {"model_type": "qwen2", **SIZE, "tie_word_embeddings": True, "initializer_range": 0.5}


@pytest.fixture(scope="module")
def data():
    return OmegaConf.to_container(compose(["recipe=tulu3_rlvr"]).data, resolve=False)


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("reward_model")
    model = ScoringPolicy(config=CONFIG)
    torch.nn.init.normal_(model.model.score.weight)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(2)
    return TextPolicy(config=CONFIG)


def part(node, kind):
    assert node.pop("_target_").endswith(kind.__name__)
    return kind(**node)


def test_the_reward_by_hand(data):
    # verified: alpha = 10; wrong: 0; cut off before its end: -10, whatever the verifier says
    reward = part(dict(data["reward"]), VerifiableReward)
    cases = [("done", 1.0), ("done", 0.0), ("length", 0.0), ("length", 1.0)]
    group = [Episode(Prompt("p"), 0, i, scores={"exact": s}, ended=ended) for i, (ended, s) in enumerate(cases)]
    assert reward(group) == [10.0, 0.0, -10.0, -10.0]


def test_a_missing_score_is_refused_by_name(data):
    with pytest.raises(KeyError, match="exact"):
        part(dict(data["reward"]), VerifiableReward)([Episode(Prompt("p"), 0, 0)])


def test_the_penalty_by_hand(data):
    # beta = .05: log-probs -1.0 and -0.5 against -1.4 and -0.3 of the start: -.05 * .4 = -.02 and -.05 * -.2 = .01
    batch = Batch(
        action_mask=torch.tensor([[True, True, False]]),
        is_demo=torch.tensor([False]),
        behavior_logprobs=torch.tensor([[-1.0, -0.5, -9.0]]),
        ref_logprobs=torch.tensor([[-1.4, -0.3, -1.0]]),
    )
    penalty = part(dict(data["annotators"]["kl_penalty"]), KLPenalty)
    assert penalty(batch, None)["token_rewards"].tolist() == [pytest.approx([-0.02, 0.01, 0.0], abs=1e-6)]


def test_the_numbers_of_ppo(data):
    objective = compose(["recipe=tulu3_rlvr"]).model.objective.terms.policy
    gae = data["annotators"]["gae"]
    assert (gae["gamma"], gae["gae_lambda"], gae["whiten"]) == (1.0, 0.95, True)
    assert (objective.clip_low, objective.clip_high, data["update_epochs"]) == (0.2, 0.2, 4)


def answer(policy, prompt="ab=", text="cd"):
    """A batch of one answer, with its end-of-sequence token, and the ids of prompt and answer."""
    ids = policy.encode({"messages": [{"role": "user", "content": prompt}], "images": []})
    action = policy.encode_demonstration({"messages": [{"role": "user", "content": prompt}], "images": []}, text)
    batch = Batch(
        **{f"obs.{name}": column for name, column in policy.collate([ids]).items()},
        action=action[None],
        action_mask=torch.ones(1, len(action), dtype=torch.bool),
        temperature=torch.ones(1),
        prompt_id=torch.zeros(1, dtype=torch.long),
    )
    return batch, torch.cat([ids["input_ids"], action])


def test_the_value_of_a_token_is_the_reward_model_s_score_of_the_text_before_it(policy, reward_model):
    """The oracle is the classifier of transformers on every beginning of the text, in a row of its own."""
    model = build_value_model(policy, str(reward_model))
    batch, ids = answer(policy)
    classifier = AutoModelForSequenceClassification.from_pretrained(reward_model).eval()
    with torch.no_grad():
        values = model.eval()(batch).values[0]
        prefixes = [ids[: len(ids) - len(values) + i] for i in range(len(values))]
        scores = [classifier(input_ids=prefix[None]).logits.item() for prefix in prefixes]
    assert len(scores) == 3 and max(scores) - min(scores) > 0.1
    assert values.tolist() == pytest.approx(scores, abs=1e-5)
    assert policy.value_head is None and policy(batch).values is None


def test_without_a_reward_model_the_value_starts_at_zero_with_the_policy_s_weights(policy):
    model = build_value_model(policy, None)
    batch, _ = answer(policy)
    assert model(batch).values.tolist() == [[0.0, 0.0, 0.0]]
    weights = policy.state_dict()
    assert all(torch.equal(weights[name], each) for name, each in model.state_dict().items() if name in weights)


def test_other_reward_models_are_refused(policy, tmp_path):
    wide = ScoringPolicy(config={**CONFIG, "hidden_size": 32})
    wide.save_pretrained(tmp_path / "wide")
    with pytest.raises(ConfigError, match=r"value_model.path=.*wide.*another network.*shape"):
        build_value_model(policy, str(tmp_path / "wide"))
    ScoringPolicy(config=CONFIG, heads=2).save_pretrained(tmp_path / "two")
    with pytest.raises(ConfigError, match="2 labels"):
        build_value_model(policy, str(tmp_path / "two"))
    with pytest.raises(ConfigError, match="value_head=false"):
        build_value_model(TextPolicy(config=CONFIG, value_head=True), None)


def test_a_learner_without_the_auxiliary_model_is_refused(policy):
    learner = SimpleNamespace(models={}, auxiliary_models={"reward": 1e-3}, policy=policy)
    with pytest.raises(ConfigError, match="auxiliary_models has no 'value'"):
        ValueModel().setup(SimpleNamespace(ckpt_path=None), learner, "fit")


def test_the_error_of_the_value_by_hand():
    # values 1 and 3 of the value model, returns 2 and 0: half the squares of 1 and 3 are 0.5 and 4.5
    out = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2))
    out.others["value"] = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]))
    batch = Batch(action_mask=torch.ones(1, 2, dtype=torch.bool), returns=torch.tensor([[2.0, 0.0]]))
    assert ModelValue(model="value")(out, batch).tolist() == [[0.5, 4.5]]


def test_values_of_a_missing_model_are_refused_by_name(policy):
    batch, _ = answer(policy)
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, group_size=1, models={"reference": policy})
    with pytest.raises(KeyError, match="no model 'value'"):
        ModelValues(model="value")(batch, ctx)


def test_the_value_model_is_built_for_training_alone_and_once(policy):
    trainer, learner = SimpleNamespace(ckpt_path=None), SimpleNamespace(models={}, policy=policy)
    learner.auxiliary_models = {"value": 1e-3}
    ValueModel().setup(trainer, learner, "validate")
    assert learner.models == {}
    ValueModel().setup(trainer, learner, "fit")
    model = learner.models["value"]
    assert model.value_head is not None
    ValueModel().setup(trainer, learner, "fit")
    assert learner.models["value"] is model


@pytest.mark.parametrize("tied", [True, False])
def test_output_embeddings_of_their_own_are_not_trained(tied):
    """Tied ones are the input embeddings, on which the value depends."""
    model = build_value_model(TextPolicy(config={**CONFIG, "tie_word_embeddings": tied}), None).model
    assert model.get_output_embeddings().weight.requires_grad == tied
    assert model.get_input_embeddings().weight.requires_grad


def test_a_model_without_storage_reads_no_weights(policy, tmp_path):
    model = build_value_model(copy.deepcopy(policy).to("meta"), str(tmp_path / "missing"))
    assert model.value_head.weight.is_meta
