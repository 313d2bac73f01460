"""Rewards of classifiers do not depend on the answers beside them; the oracle is transformers, one row at a time."""

import logging

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.rewards.judges.model import ModelJudge
from mmrl.rewards.judges.pointwise import YesNo
from mmrl.rewards.models.learned import ClassifierReward
from mmrl.rewards.models.process import ProcessRewardModel
from mmrl.rewards.models.row_scorer import RowScorer
from scripts.model_sweep.configs import tiny_config
from tests.rewards.judges.checkpoint import enlarge_weights
from tests.rewards.judges.episodes import group_of

TEXTS = ["a", "a longer answer than that, by far", "x y"]


def build(kind, folder, auto=AutoModelForSequenceClassification, labels=1):
    """A tiny checkpoint with weights large enough for scores that differ."""
    tokenizer = character_tokenizer()
    config = tiny_config(kind, special_ids(tokenizer))
    config.num_labels = labels
    torch.manual_seed(0)
    model = auto.from_config(config)
    enlarge_weights(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def scores_alone(folder, group):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    scores = []
    for episode in group:
        messages = [*episode.prompt.messages, {"role": "assistant", "content": episode.output}]
        text = tokenizer.apply_chat_template(messages, tokenize=False) + tokenizer.eos_token
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            scores.append(model(ids, attention_mask=torch.ones_like(ids)).logits.item())
    return scores


@pytest.mark.parametrize(
    "kind, reads_padding",
    [("qwen2", False), ("modernbert", False), ("xlnet", True), ("convbert", True), ("fnet", True)],
)
def test_a_reward_is_that_of_the_answer_alone(kind, reads_padding, tmp_path, caplog):
    folder, group = build(kind, tmp_path), group_of(TEXTS)
    with caplog.at_level(logging.WARNING):
        rewards = ClassifierReward(folder, device="cpu")(group)
    expected = scores_alone(folder, group)
    assert len({round(score, 3) for score in expected}) == 3
    assert rewards == pytest.approx(expected, abs=1e-5)
    assert (f"({kind}): rows padded on the right change its scores by" in caplog.text) == reads_padding


def test_rows_of_one_length_share_a_pass(tmp_path):
    """The forward passes of a model that reads padding: by length, and at most a batch each."""
    model = AutoModelForSequenceClassification.from_pretrained(build("xlnet", tmp_path)).eval()
    shapes = []
    model.register_forward_pre_hook(lambda module, ids: shapes.append(tuple(ids[0].shape)))
    rows = [[5, 6, 7], [5, 6, 7, 8, 9, 10, 11], [6, 7, 8], [7, 8, 9], [8, 9, 10]]
    scorer = RowScorer(model, 0, 3, "the model")
    scorer(rows)
    compared = [(2, 7), (1, 3), (1, 7)]
    assert shapes == [*compared, (3, 3), (1, 3), (1, 7)]
    scorer(rows)
    assert shapes[6:] == shapes[3:6]  # compared once


def test_tokens_are_labelled_without_the_padding(tmp_path):
    folder = build("bert", tmp_path, AutoModelForTokenClassification, 2)
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    rows = [[5, 6, 7], [5, 6, 7, 8, 9]]
    for row, logits in zip(rows, RowScorer(model, 0, 8, "the model")(rows), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([row])).logits[0]
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_network_that_cannot_read_texts_is_named(tmp_path):
    folder = build("lilt", tmp_path)
    message = rf"the classifier {folder} \(lilt\) cannot score rows of text: .*\. Choose a classifier"
    with pytest.raises(ValueError, match=message):
        ClassifierReward(folder, device="cpu")(group_of(TEXTS))


def test_a_head_that_the_checkpoint_lacks_is_not_drawn_at_random(tmp_path):
    """transformers draws it and warns; rewards of such a head would be noise."""
    language = build("qwen2", tmp_path / "language", AutoModelForCausalLM)
    classifier = build("qwen2", tmp_path / "classifier")
    group = group_of(TEXTS)
    judges = {
        language: [
            lambda: ClassifierReward(language, device="cpu")(group),
            lambda: ProcessRewardModel(language, device="cpu")(group, [["a"]] * len(group)),
        ],
        classifier: [lambda: ModelJudge(classifier, device="cpu").judge(YesNo().ask(group))],
    }
    for folder, calls in judges.items():
        for call in calls:
            with pytest.raises(
                ValueError, match=rf"{folder}: the checkpoint lacks \d+ weights, .*; it was saved by Qwen2"
            ):
                call()
