"""Ensembles of reward models: combinations of the scores of plain classifiers of transformers."""

import statistics

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rewards.models.ensemble import EnsembleReward
from mmrl.rewards.models.learned import ClassifierReward
from tests.policies.text.test_scorer import TINY
from tests.rewards.judges.episodes import group_of

TEXTS = ["4", "four, I think", ""]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model with one head, and one with two named heads."""
    paths = []
    for seed, heads in enumerate((1, ["helpful", "short"])):
        torch.manual_seed(seed)
        path = tmp_path_factory.mktemp("rm")
        ScoringPolicy(config=TINY, heads=heads).save_pretrained(path)
        paths.append(str(path))
    return paths


def plain_scores(folders, episode):
    """Scores of all heads by transformers alone, one answer at a time."""
    out = []
    for path in folders:
        model, tokenizer = (
            AutoModelForSequenceClassification.from_pretrained(path).eval(),
            AutoTokenizer.from_pretrained(path),
        )
        messages = [*episode.prompt.messages, {"role": "assistant", "content": episode.output}]
        text = tokenizer.apply_chat_template(messages, tokenize=False) + tokenizer.eos_token
        with torch.no_grad():
            out += model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0].tolist()
    return out


@pytest.mark.parametrize("combine", ["mean", "min", "lower"])
def test_combinations_of_plain_scores(folders, combine):
    episodes = group_of(TEXTS)
    reward = EnsembleReward(folders, combine, deviations=2.0, device="cpu")
    for episode, scores in zip(episodes, reward.scores(episodes)):
        plain = plain_scores(folders, episode)
        assert len(plain) == 3
        spread = statistics.pstdev(plain)
        expected = {"mean": statistics.fmean(plain), "min": min(plain), "lower": statistics.fmean(plain) - 2 * spread}
        assert scores["reward_model"] == pytest.approx(expected[combine], abs=1e-5)
        assert scores["reward_model_spread"] == pytest.approx(spread, abs=1e-5)
        episode.scores = scores
    assert reward(episodes) == [episode.scores["reward_model"] for episode in episodes]


def test_one_head_of_several_is_a_reward(folders):
    episodes = group_of(TEXTS)
    for head in ("short", 1):
        values = ClassifierReward(folders[1], device="cpu", head=head)(episodes)
        assert values == pytest.approx([plain_scores(folders[1:], episode)[1] for episode in episodes], abs=1e-5)
    with pytest.raises(ValueError, match=r"has 2 labels; .* one of \['helpful', 'short'\]"):
        ClassifierReward(folders[1], device="cpu")(episodes)
    with pytest.raises(ValueError, match="has no head 'long'"):
        ClassifierReward(folders[1], device="cpu", head="long").load()


def test_refusals():
    with pytest.raises(ValueError, match=r"reward\.paths="):
        EnsembleReward()
    with pytest.raises(ValueError, match=r"reward\.combine must be mean, min or lower"):
        EnsembleReward(["a"], "median")
