"""The judge in this process beside its model alone: unpadded greedy generation, and log-probs summed by hand."""

import logging
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from mmrl.policies.text.tiny import character_tokenizer
from mmrl.rewards.judges.model import ModelJudge
from mmrl.rewards.judges.pointwise import Pointwise, YesNo
from mmrl.rewards.judges.reward import JudgeReward
from tests.rewards.judges.checkpoint import build_checkpoint, build_kind
from tests.rewards.judges.episodes import group_of

ANSWERS = ["4", "I think that it is 5", "", "about 4.0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_checkpoint(tmp_path_factory.mktemp("judge"))


def alone(folder, text):
    """Ids of a question by itself, and the model."""
    judge = ModelJudge(folder)
    model, tokenizer = judge._parts
    return tokenizer(judge._format(text, tokenizer), return_tensors="pt", add_special_tokens=False), model, tokenizer


def test_replies_are_those_of_the_model_alone(folder):
    questions = Pointwise().ask(group_of(ANSWERS))
    replies = ModelJudge(folder, max_tokens=12, batch_size=3).reply(questions)
    for question, reply in zip(questions, replies):
        inputs, model, tokenizer = alone(folder, question.text)
        ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert reply.text == tokenizer.decode(ids, skip_special_tokens=True)
        assert reply.prompt_tokens == inputs["input_ids"].shape[1]


def test_log_odds_are_summed_over_the_forms_of_a_word(folder):
    questions = YesNo().ask(group_of(ANSWERS))
    odds = ModelJudge(folder, batch_size=3).judge(questions)
    for question, value in zip(questions, odds):
        inputs, model, tokenizer = alone(folder, question.text)
        with torch.no_grad():
            probs = model(**inputs).logits[0, -1].double().softmax(dim=-1)
        ids = tokenizer.convert_tokens_to_ids
        expected = ((probs[ids("yes")] + probs[ids(" Yes")]) / probs[ids("no")]).log().item()
        assert value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "next_differs", "written_differs"),
    [("gpt2", True, False), ("electra", True, False), ("recurrent_gemma", True, True), ("bloom", False, False)],
)
def test_a_judge_whose_type_reads_padding_replies_as_alone(kind, next_differs, written_differs, tmp_path, caplog):
    """The oracle is transformers with one question at a time, without padding."""
    folder = build_kind(kind, tmp_path)
    judge, group = ModelJudge(folder, max_tokens=8, batch_size=3, device="cpu"), group_of(ANSWERS)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def read(question):
        text = ModelJudge._format(question.text, tokenizer)
        return tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]

    def is_logged():
        text = rf"{kind}\): questions padded on the left change its logits by \d.* of the largest"
        return bool(re.search(text, caplog.text))

    questions = YesNo().ask(group)
    with caplog.at_level(logging.WARNING), torch.no_grad():
        odds = judge.judge(questions)
        yes, capital, no = tokenizer.convert_tokens_to_ids(["yes", " Yes", "no"])
        logits = [model(read(question)).logits[0, -1].double() for question in questions]
        expected = [float(each[[yes, capital]].logsumexp(0) - each[no]) for each in logits]
        assert odds == pytest.approx(expected, abs=1e-4) and len({round(value, 4) for value in odds}) == len(odds)
        assert is_logged() == next_differs
        caplog.clear()
        for question, reply in zip(written := Pointwise().ask(group), judge.reply(written)):
            ids = read(question)
            new = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.pad_token_id)
            assert reply.text == tokenizer.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        assert is_logged() == written_differs


def test_a_word_that_is_no_token_is_named(folder, tmp_path):
    character_tokenizer().save_pretrained(tmp_path)
    Qwen2ForCausalLM(Qwen2Config(vocab_size=200, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                 num_attention_heads=1, num_key_value_heads=1)).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(ValueError, match=re.escape(f"reward.judge.path={tmp_path}: no token") + ".*'yes'"):
        ModelJudge(str(tmp_path)).judge(YesNo().ask(group_of(["4"])))


def test_pictures_are_refused_before_the_first_rollout(folder):
    import numpy as np

    group = group_of(["1"])
    group[0].prompt = type(group[0].prompt)("t/train/0", group[0].prompt.messages, (np.zeros((2, 2, 3), np.uint8),))
    with pytest.raises(ValueError, match="'t/train/0' has images"):
        JudgeReward(ModelJudge(folder), Pointwise(), {"judge": 1.0}).check_task([group[0].prompt])
