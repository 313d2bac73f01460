"""Perplexities of right answers, against the logits of plain transformers."""

import math
from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Context, Episode, Sampling
from mmrl.data.answer_logprobs import AnswerLogprobs
from mmrl.engines.local import LocalEngine
from mmrl.evaluation.boundary.perplexity import OWN, START, summarize_perplexity
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.grammar import Grammar
from tests.policies.text.oracle import TINY, decided

LAWS = [lambda: AnswerLogprobs(rows=2)]


def played(temperature):
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=dict(TINY))).eval()
    torch.manual_seed(1)
    reference = decided(TextPolicy(config=dict(TINY))).eval()
    sampling = Sampling(temperature=temperature, top_p=0.9, max_tokens=6)
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(Grammar(), engine, policy, sampling, 0, 0, group_size=2, models={"reference": reference})
    return SingleTurn().collect([(i, ctx.task[i]) for i in range(2)], ctx), ctx


def mean_logprob(model, completion):
    """The logit before each token predicts it: plain log-softmax, temperature 1, all tokens allowed."""
    prompt, answer = completion.observation["input_ids"], completion.action
    with torch.no_grad():
        logits = model.model(torch.cat([prompt, answer])[None]).logits[0, len(prompt) - 1 : -1]
    return float(logits.log_softmax(-1).gather(1, answer[:, None]).mean())


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_those_of_both_models_whatever_the_sampling(temperature):
    episodes, ctx = played(temperature)
    for before, episode in zip(episodes, AnswerLogprobs(rows=3)(episodes, ctx), strict=True):
        (turn,) = before.turns
        own, start = (mean_logprob(model, turn.completion) for model in (ctx.policy, ctx.models["reference"]))
        assert episode.info[OWN] == pytest.approx(own, abs=1e-5)
        assert episode.info[START] == pytest.approx(start, abs=1e-5) and abs(own - start) > 1e-3
        assert START not in before.info
    alone = AnswerLogprobs()(episodes, replace(ctx, models={}))
    assert OWN in alone[0].info and START not in alone[0].info


def test_episodes_without_text_stay_as_they_are():
    _, ctx = played(1.0)
    empty = Episode(ctx.task[0], 0, 0, ended="error")
    assert AnswerLogprobs()([empty], ctx) == [empty]


def answers(entry, *values):
    """Right answers and, last, a wrong one."""
    right = [*[1.0] * (len(values) - 1), 0.0]
    return [
        Episode(Grammar()[i], i, 0, scores={"exact": score}, info={OWN: value, entry: value - 1})
        for i, (value, score) in enumerate(zip(values, right))
    ]


def test_medians_of_right_answers_by_hand():
    start, now = answers("other", -3.0, -1.0, -2.0, -9.0), answers(START, -0.5, -0.7, -0.1, 0.0)
    # start: exp(3), exp(1), exp(2); now: exp(0.5), exp(0.7), exp(0.1), and one nat more each under the start
    assert summarize_perplexity(start, now, "exact") == pytest.approx(
        {
            "perplexity_start_by_start": math.exp(2),
            "perplexity_policy_by_start": math.exp(1.5),
            "perplexity_policy_by_policy": math.exp(0.5),
        }
    )


def test_a_measurement_from_files_gives_none():
    """Its reference would be another policy than the one that is compared with."""
    start, now = answers("other", -3.0, -1.0), answers(START, -0.5, -0.7)
    for episode in start:
        episode.info.clear()
    assert summarize_perplexity(start, now, "exact") == {}
