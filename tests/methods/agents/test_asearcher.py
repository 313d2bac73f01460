"""ASearcher's reward and its decoupled loss, by hand."""

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.methods.agents.asearcher import FormattedAnswer
from tests.composed_words import compose_words

CFG = compose_words(("method=asearcher", "setting=search"))
GOOD = ("search", {"query": "winner"}, "ok")
BAD = ("search", {"query": ""}, "BadArguments")
MISSING = ("search", {"query": "nobody"}, "NotFound")


def scores_of(output, calls=(GOOD,), ended="done", **options):
    ids = torch.zeros(1, dtype=torch.long)
    done = Completion({}, ids, torch.zeros(1), torch.ones(1).bool(), output, ended)
    prompt = Prompt("wiki/train/0", answer="Barack Obama")
    episode = Episode(prompt, 0, 0, [Turn(done)], ended=ended, info={"calls": list(calls)})
    (scores,) = FormattedAnswer({}, **options).scores([episode])
    return scores["format"], scores["f1"], scores["formatted"]


def test_rewards_by_hand():
    """F1("the Barack Obama Jr", "Barack Obama"): without the article P = 2/3, R = 1: .8."""
    good = "He won. <answer>the Barack Obama Jr</answer>"
    assert scores_of(good) == pytest.approx((1, 0.8, 0.8))
    assert scores_of(good, (GOOD, MISSING)) == pytest.approx((1, 0.8, 0.8))  # a call that finds nothing is a call
    assert scores_of(good, (GOOD, BAD)) == pytest.approx((0, 0.8, 0))
    assert scores_of(good, ended="length") == pytest.approx((0, 0.8, 0))
    assert scores_of("Barack Obama") == (0, 0, 0)
    assert scores_of("<answer>a</answer> <answer>Barack Obama</answer>") == (0, 0, 0)  # one answer a turn
    assert scores_of("<answer>Barack Obama</answer> or so") == (0, 0, 0)
    assert scores_of("barack obama", answer_pattern="([a-z ]+)") == pytest.approx((1, 1, 1))


def test_the_loss_by_hand():
    """Three tokens, with log-probs l, before the update p and of the sampler b; e = .4, cap = 5.

    l = (-1, -.5, -2), p = (-1.2, -1.5, -2), b = (-1, -1, -4), A = (1, 1, -1): u = e^(l-p) = (1.221403, 2.718282, 1),
    w = e^(p-b) = (.818731, .606531, 7.389056 > 5: 0), w max(-A u, -A clip(u, .6, 1.4)) = (-1, -.849143, 0), where
    .818731 * 1.221403 = e^-.2 e^.2 = 1 and .606531 * 1.4 = .849143. The masked token counts in the mean: -.616381.
    """
    row = {"logprobs": [-1.0, -0.5, -2.0], "old": [-1.2, -1.5, -2.0], "behavior": [-1.0, -1.0, -4.0]}
    logprobs, old, behavior = (torch.tensor([row[name]]) for name in row)
    mask = torch.ones(1, 3).bool()
    batch = Batch(
        old_logprobs=old, behavior_logprobs=behavior, action_mask=mask, is_demo=torch.tensor([False]),
        advantages=torch.tensor([[1.0, 1.0, -1.0]]), is_last=torch.tensor([True]),
    )  # fmt: skip
    weigh = instantiate(CFG.data.annotators.masked_importance)
    term = instantiate(CFG.model.objective.terms.policy)
    batch = weigh(batch, Context(None, None, None, Sampling(), seed=0, iteration=0))
    assert_close(batch["importance_weights"], torch.tensor([[0.818731, 0.606531, 0.0]]), atol=1e-6, rtol=0)
    loss = term(PolicyOutput(logprobs, torch.zeros(1, 3)), batch)
    assert_close(loss, torch.tensor([[-1.0, -0.849143, 0.0]]), atol=1e-6, rtol=0)
    assert_close(loss.mean(), torch.tensor(-0.616381), atol=1e-6, rtol=0)


def test_the_method_is_decoupled_and_stale():
    assert list(CFG.data.pipeline) == ["old", "masked_importance", "group_advantage"] and CFG.data.staleness == 4
    policy = CFG.model.objective.terms.policy
    assert (policy.old, policy.importance_weights) == ("old_logprobs", "importance_weights")
    assert CFG.data.annotators.group_advantage.scale == "batch"


def test_a_pattern_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="has no group"):
        FormattedAnswer({}, answer_pattern="why")
