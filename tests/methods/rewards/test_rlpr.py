"""The reward of a reference answer's probability by hand, and the filter by its standard deviation."""

import warnings
from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Context, Episode, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.rewards import rlpr
from mmrl.methods.rewards.rlpr import FilterRewardStd, ProbabilityReward
from mmrl.policies.text.policy import TextPolicy
from mmrl.transforms.answer_splice import Splice, answer_probabilities, mean_probability, reference_answer
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions, decided

TASK = Arithmetic(digits=(1, 1, 1), steps=True)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


def answered(policy, outputs):
    """One group whose completions are these texts."""
    done = completions(policy, [TASK[0]] * len(outputs), Sampling(max_tokens=4))
    rows = [replace(c, output=text) for c, text in zip(done, outputs)]
    return [Episode(TASK[0], 4, k, [Turn(row)], reward=9.0) for k, row in enumerate(rows)]


def context(policy=None, iteration=0):
    return Context(TASK, None, policy, Sampling(), seed=0, iteration=iteration, group_size=2)


def test_hand_computed(policy, monkeypatch):
    """p = [.9, .6, .3]: mean .6; .3 without reasoning: .9 * .3 + .1 = .37. A score of .2 is below .3: .1."""
    given = {"7\n": torch.tensor([0.9, 0.6, 0.3]), "8\n": torch.tensor([0.2]), "\n": torch.tensor([0.3])}
    monkeypatch.setattr(rlpr, "answer_probabilities", lambda parts, *_: [given[part.reasoning] for part in parts])
    result = ProbabilityReward()(answered(policy, ["7\n15", "8\n1", "15"]), context(policy))
    assert [e.reward for e in result] == pytest.approx([0.37, 0.1, 0.0])
    assert [e.scores["probability"] for e in result] == pytest.approx([0.3, 0.0, 0.0])
    plain = ProbabilityReward(debias=False, format_weight=0.0)(answered(policy, ["7\n15"]), context(policy))
    assert plain[0].reward == pytest.approx(0.6)


def test_it_is_what_the_policy_says_after_the_reasoning(policy):
    """The answer's tokens, teacher-forced: the same as the log-probs of a whole completion."""
    reasoning, answer = "12\n14\n", str(TASK[0].answer)
    ids = policy.tokenize(reasoning + answer)
    like = completions(policy, [TASK[0]], Sampling(max_tokens=4))[0]
    ones = torch.ones(len(ids), dtype=torch.bool)
    row = replace(like, action=ids, behavior_logprobs=torch.zeros(len(ids)), action_mask=ones)
    with torch.no_grad():
        whole = policy(collate([Episode(TASK[0], 0, 0, [Turn(row)])], policy)).logprobs[0].exp()
    (found,) = answer_probabilities([Splice(TASK[0], reasoning, answer)], context(policy))
    torch.testing.assert_close(found, whole[-len(answer) :])
    several = [
        Splice(TASK[k], r, a) for k, r, a in ((0, reasoning, answer), (1, "", "4"), (0, "\n", ""), (1, "1", "16"))
    ]
    alone = [answer_probabilities([splice], context(policy))[0] for splice in several]
    for left, right in zip(answer_probabilities(several, context(policy), rows=3), alone):
        torch.testing.assert_close(left, right)
    assert mean_probability(alone[2]) == 0  # an answer without a token
    (episode,) = ProbabilityReward(debias=False, format_weight=0.0)(
        answered(policy, [f"{reasoning}3"]), context(policy)
    )
    assert episode.reward == pytest.approx(float(found.mean()))


def groups(*stds):
    """Groups of two rewards 0 and 2 std, whose population std is std."""
    prompt = Prompt("toy/train/0")
    return [Episode(prompt, g, k, reward=2 * std * k) for g, std in enumerate(stds) for k in (0, 1)]


def test_the_moving_average_by_hand():
    """.10, then .12 and .08: .99 * .10 + .01 * .12 = .1002, .99 * .1002 + .01 * .08 = .099998; limit .049999."""
    part = FilterRewardStd(start=0, begin=2)
    assert len(part(groups(0.1, 0.1), context(iteration=0))) == 4
    assert len(part(groups(0.0, 0.24), context(iteration=1))) == 4  # mean .12; nothing is dropped before `begin`
    kept = part(groups(0.049, 0.0509999, 0.1400001), context(iteration=2))  # mean .08
    assert part.state_dict()["std"] == pytest.approx(0.099998, abs=1e-6)
    assert [e.group for e in kept] == [1, 1, 2, 2]
    again = FilterRewardStd(start=0, begin=2)
    again.load_state_dict(part.state_dict())
    assert len(again(groups(0.01), context(iteration=3))) == 0
    assert FilterRewardStd().state_dict() == {} and len(FilterRewardStd()(groups(0.0), context(iteration=4))) == 2


def test_refusals(policy):
    for make in (
        lambda: ProbabilityReward(marker=""),
        lambda: ProbabilityReward(format_weight=2.0),
        lambda: FilterRewardStd(retain=1.0),
        lambda: FilterRewardStd(start=3, begin=2),
    ):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(ValueError, match=r"reference answer in words.*toy/train/0.*NoneType"):
        reference_answer(Prompt("toy/train/0"), "probability_reward")


def test_the_average_begins_at_its_start_with_groups_to_measure():
    part = FilterRewardStd(start=1, begin=2)
    part(groups(0.5), context(iteration=0))
    assert part.state_dict() == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part([], context(iteration=1)) == [] and part.state_dict() == {}
    # the mean .5 begins the average; a group with half of it, .25, stays
    assert len(FilterRewardStd(start=0, begin=0)(groups(0.25, 0.75), context(iteration=0))) == 4
