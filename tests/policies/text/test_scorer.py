import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForSequenceClassification

from mmrl.core.types import Completion, Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.rewards.models.learned import ClassifierReward
from mmrl.rollouts.offline.pairs import PreferencePairs, ScoredPairs
from tasks.preferences.task import Preferences
from tests.policies.text.test_fidelity import Shaking
from tests.rewards.models.test_row_scorer import build

TINY = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
TASK = Preferences()


@pytest.fixture(scope="module", params=[None, [8]], ids=["classifier", "embedding"])
def policy(request):
    torch.manual_seed(0)
    return ScoringPolicy(config=TINY, hidden=request.param)


def context(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(), seed=0, iteration=0)


PROMPTS = [(slot, TASK[slot]) for slot in range(3)]


def test_forward_says_what_act_says(policy):
    """Padding, order and company of an answer do not change its score."""
    judged = ScoredPairs().collect(PROMPTS, context(policy))
    rows = collate(PreferencePairs().collect(PROMPTS, context(policy)), policy)
    assert rows["preference"].tolist() == [1, -1] * 3 and rows["group"].tolist() == [0, 0, 1, 1, 2, 2]
    values = policy(rows).values.detach()
    margins = torch.tensor([episode.info["scores"]["margin"] for episode in judged])
    assert_close(values[::2] - values[1::2], margins, atol=1e-5, rtol=1e-4)
    assert [e.info["scores"]["right"] for e in judged] == [float(m > 0) for m in margins]


def test_an_export_scores_alike(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    again = ScoringPolicy(path=str(tmp_path), hidden=None if policy.head is None else [8])
    rows = collate(PreferencePairs().collect(PROMPTS, context(policy)), policy)
    assert_close(again(rows).values, policy(rows).values)


def test_an_exported_classifier_is_a_reward(tmp_path):
    torch.manual_seed(0)
    policy = ScoringPolicy(config=TINY)
    policy.save_pretrained(tmp_path)
    judged = ScoredPairs().collect(PROMPTS[:1], context(policy))[0]
    done = [
        Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1), PROMPTS[0][1].info[n])
        for n in ("chosen", "rejected")
    ]
    group = [Episode(PROMPTS[0][1], 0, i, [Turn(c)]) for i, c in enumerate(done)]
    best, worst = ClassifierReward(str(tmp_path), device="cpu")(group)
    assert_close(best - worst, judged.info["scores"]["margin"], atol=1e-5, rtol=1e-4)


def test_a_frozen_model_stays(policy):
    learns = {name.split(".")[0] for name, p in policy.named_parameters() if p.requires_grad}
    assert learns == ({"model"} if policy.head is None else {"head"})


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_padded_rows_are_scored_as_by_the_plain_classifier(kind, tmp_path):
    torch.manual_seed(0)
    tokenizer = character_tokenizer()
    sizes = {name: value for name, value in TINY.items() if name != "model_type"}
    config = AutoConfig.for_model(kind, **sizes, **special_ids(tokenizer), num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    policy, reward = ScoringPolicy(path=str(tmp_path)).train(), ClassifierReward(str(tmp_path), device="cpu")
    prompt = TASK[0]
    answers = ["a", "a longer answer", ""]
    rows = [policy.encode({"messages": prompt.messages, "answer": answer}) for answer in answers]
    expected = torch.stack([plain(input_ids=row["input_ids"][None]).logits[0, 0] for row in rows])
    assert_close(policy.scores(policy.collate(rows)), expected, atol=1e-5, rtol=1e-4)
    done = [Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1), answer) for answer in answers]
    scores = reward([Episode(prompt, 0, i, [Turn(c)]) for i, c in enumerate(done)])
    assert_close(torch.tensor(scores), expected.detach(), atol=1e-5, rtol=1e-4)


def test_a_classifier_that_draws_unknown_noise_is_refused(tmp_path, monkeypatch):
    ScoringPolicy(config=TINY).save_pretrained(tmp_path)

    def shake(model):
        model.model.norm = Shaking(model.model.norm)
        return model

    monkeypatch.setattr("mmrl.policies.text.scorer.remove_noise", shake)
    with pytest.raises(ValueError, match=r"qwen2 computes something else .*training mode, change its numbers by \d"):
        ScoringPolicy(path=str(tmp_path))


def test_a_classifier_whose_last_word_is_the_end_is_compared_too(tmp_path):
    """As GPT-2's vocabulary, whose last id is its only special one."""
    tokenizer = character_tokenizer()
    end = max(token for token in tokenizer.get_vocab().values() if token not in tokenizer.all_special_ids)
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(end)
    sizes = {name: value for name, value in TINY.items() if name != "model_type"}
    ids = {"pad_token_id": end, "eos_token_id": end, "bos_token_id": end, "vocab_size": end + 1}
    config = AutoConfig.for_model("qwen2", **sizes, **ids, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = ScoringPolicy(path=str(tmp_path))
    assert policy.tokenizer.pad_token_id == policy.model.config.vocab_size - 1


def test_a_classifier_whose_convolutions_read_the_padding_is_refused(tmp_path):
    """Two tokens before the padding are enough for its kernel of nine to see it."""
    build("convbert", tmp_path)
    with pytest.raises(ValueError, match=r"convbert computes something else .*padded on the right"):
        ScoringPolicy(path=str(tmp_path))
