"""Teacher traces in groups that fail: how many, which ones, and the loss of their tokens."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, PolicyOutput, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.guidance.ampo import AddTeacherTraces, ShapedSurrogate
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.transforms.answer_splice import Splice, answer_probabilities, mean_probability, split_reasoning
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions, decided, plain_logits

LAWS = [lambda: AddTeacherTraces({"teacher": Arithmetic(steps=True)})]

STEPS, PLAIN = Arithmetic(digits=(1, 1, 1), steps=True), Arithmetic(digits=(1, 1, 1))
SCORER = Scorer(STEPS, WeightedSum({"exact": 1.0}))


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


def sampled(policy, right=(0, 0)):
    """Two groups of 8 whose first completions are right, as many as asked for."""
    prompts = [STEPS[slot] for slot in (0, 1) for _ in range(8)]
    done = completions(policy, prompts, Sampling(max_tokens=4))
    episodes = [Episode(p, i // 8, i % 8, [Turn(c)]) for i, (p, c) in enumerate(zip(prompts, done))]
    for episode in episodes:
        success = float(episode.sample_index < right[episode.group])
        episode.scores, episode.reward = {"exact": success}, success
    return episodes


def context(policy):
    return Context(STEPS, None, policy, Sampling(), seed=0, iteration=0, group_size=8, collector=SCORER)


def test_traces_replace_completions_of_groups_without_a_success(policy):
    episodes = sampled(policy, right=(0, 1))
    result = AddTeacherTraces({"steps": STEPS, "plain": PLAIN})(list(episodes), context(policy))
    failed, solved = group_episodes(result).values()
    assert solved == episodes[8:]
    assert [e.sample_index for e in failed] == list(range(8))
    shown = [e for e in failed if e.source == "demo"]
    assert sorted(e.output for e in shown) == sorted([STEPS.demonstrate(0), PLAIN.demonstrate(0)])
    assert all(e in episodes for e in failed if e.source == "policy")
    # six completions with 0 and two traces with 1: mean 1/4, advantages -.25 and .75 (no division by the std)
    batch = collate(failed, policy)
    advantages = GroupAdvantage(None)(batch, context(policy))["advantages"][:, 0]
    assert_close(advantages, torch.where(batch["is_demo"], 0.75, -0.25))
    assert [e.info["counts"]["guided_groups"] for e in (episodes[0], episodes[8])] == [1, 0]  # whichever were replaced


def test_the_trace_after_which_the_answer_is_most_probable_comes_first(policy):
    """Against a plain forward pass over prompt, reasoning and answer: the mean over the answer's tokens."""

    def mean_probability(reasoning):
        answer = policy.tokenize(str(STEPS[0].answer))
        ids = torch.cat([policy.tokenize(reasoning), answer])
        like = completions(policy, [STEPS[0]], Sampling(max_tokens=4))[0]
        done = replace(like, action=ids, action_mask=torch.ones(len(ids), dtype=torch.bool))
        p = plain_logits(policy, done).softmax(-1).gather(-1, ids[:, None])[:, 0]
        return float(p[-len(answer) :].mean())

    reasoning = split_reasoning(STEPS.demonstrate(0), "\n")
    assert reasoning.endswith("\n") and STEPS.demonstrate(0) == f"{reasoning}{STEPS[0].answer}"
    expected = {STEPS.demonstrate(0): mean_probability(reasoning), PLAIN.demonstrate(0): mean_probability("")}
    splices = [Splice(STEPS[0], text, str(STEPS[0].answer)) for text in (reasoning, "")]
    found = [float(p.mean()) for p in answer_probabilities(splices, context(policy))]
    assert found == pytest.approx(list(expected.values()), abs=1e-5)
    one = AddTeacherTraces({"steps": STEPS, "plain": PLAIN}, max_traces=1)(sampled(policy)[:8], context(policy))
    (shown,) = [e.output for e in one if e.source == "demo"]
    assert shown == max(expected, key=expected.get)


def test_the_mean_is_over_the_tokens():
    # .7 and .675: the first is better, though its product .45 is smaller than .455
    assert mean_probability(torch.tensor([0.9, 0.5])) == pytest.approx(0.7)
    assert mean_probability(torch.tensor([0.7, 0.65])) == pytest.approx(0.675)
    assert mean_probability(torch.tensor([])) == 0


def test_the_shaped_loss_by_hand():
    p = torch.tensor([[0.01, 0.05, 0.1, 1.0]])
    batch = Batch(action_mask=torch.ones(1, 4).bool(), advantages=torch.ones(1, 4))
    logprobs = p.log().requires_grad_()
    loss = ShapedSurrogate()(PolicyOutput(logprobs, p), batch)
    assert_close(loss, -torch.tensor([[0.090909, 0.333333, 0.5, 0.909091]]), rtol=0, atol=1e-6)
    loss.sum().backward()
    assert_close(logprobs.grad, -p * 0.1 / (p + 0.1) ** 2)


def test_refusals(policy):
    with pytest.raises(ValueError, match=r"teacher 'other' has another problem 0"):
        AddTeacherTraces({"other": Arithmetic()})(sampled(policy), context(policy))
    with pytest.raises(ValueError, match="at least one teacher"):
        AddTeacherTraces({})
    with pytest.raises(ValueError, match="gamma"):
        ShapedSurrogate(0.0)


def test_nothing_outside_the_mask_has_a_loss():
    # p = .1 with gamma .1: -2 / 2 = -1
    batch = Batch(action_mask=torch.tensor([[True, False]]), advantages=torch.tensor([[2.0, torch.nan]]))
    logprobs = torch.tensor([[0.1, torch.nan]]).log()
    assert_close(ShapedSurrogate()(PolicyOutput(logprobs, logprobs), batch), torch.tensor([[-1.0, 0.0]]))


def test_a_score_at_the_threshold_is_no_success(policy):
    part = AddTeacherTraces({"steps": STEPS})
    group = sampled(policy)[:2]
    for episode, above in zip(group, (0.0, 0.5)):
        episode.scores = {"exact": part.success_threshold}
        assert not part._has_success(group)
        if above:
            episode.scores = {"exact": part.success_threshold + above}
            assert part._has_success(group)
