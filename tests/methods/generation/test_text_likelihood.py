"""Likelihood of a task's own texts: the log-probs of plain transformers, letter by letter."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.generation.text_likelihood import TextLikelihood
from mmrl.policies.text.policy import TextPolicy
from tasks.grammar import Grammar
from tests.policies.text.oracle import TINY, decided

LAWS = [lambda: TextLikelihood(end_token=False)]


def make_context():
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=dict(TINY))).eval()
    task = Grammar(levels=[0], refusals=0.0)
    ctx = Context(task, LocalEngine(), policy, Sampling(), 0, 0)
    return ctx, [Episode(task[i], i, 0, scores={"met": 0.5}) for i in (3, 5, 8)]


@pytest.mark.parametrize(("first", "end_token"), [(0, True), (0, False), (1, True)])
def test_scores_are_the_mean_log_probs_of_the_demonstrations(first, end_token):
    """ids prompt + demonstration + end; the logit before each token of the demonstration predicts it."""
    ctx, episodes = make_context()
    policy, tokenizer = ctx.policy, ctx.policy.tokenizer
    for before, episode in zip(episodes, TextLikelihood(first, end_token)(episodes, ctx)):
        prompt = policy.encode(before.prompt.observation)["input_ids"]
        answer = tokenizer.encode(ctx.task.demonstrate(before.prompt.index), add_special_tokens=False)
        answer = torch.tensor([*answer, tokenizer.eos_token_id][: len(answer) + end_token])
        with torch.no_grad():
            logits = policy.model(torch.cat([prompt, answer])[None]).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, answer[:, None])[first:].mean()
        assert_close(episode.scores["text_logprob"], float(expected), atol=1e-5, rtol=0)
        assert episode.scores["text_perplexity"] == pytest.approx(math.exp(-float(expected)), rel=1e-5)
        assert episode.scores["met"] == 0.5 and episode.turns == []
    assert "text_logprob" not in episodes[0].scores


def test_a_task_of_several_decisions_is_refused():
    ctx, episodes = make_context()

    class Turns(Grammar):
        def demonstrations(self, prompts):
            return [[({}, "a"), ({}, "b")] for _ in prompts]

    with pytest.raises(ConfigError, match=r"text_likelihood: .* has 2 decisions; choose a task"):
        TextLikelihood()(episodes, replace(ctx, task=Turns()))
    assert TextLikelihood()([], ctx) == []
    with pytest.raises(ConfigError, match="none counts with first=99"):
        TextLikelihood(first=99)(episodes, ctx)
    with pytest.raises(ValueError, match="rows"):
        TextLikelihood(rows=0)
