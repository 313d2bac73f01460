"""Hints as long as half accuracy needs: the curve, the rows, and what is remembered."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.seele import Hinted, HintNegativeLogLikelihood, Response, _grid, fit_response
from mmrl.objectives.objective import Objective
from mmrl.objectives.weighting import ConstantLength, SequenceMean, TokenMean
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from tasks.arithmetic import Arithmetic
from tests.composed_words import compose_words
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic(digits=(1, 1, 1, 1), steps=True)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


def context(policy, group_size=8, iteration=0):
    engine = LocalEngine()
    engine.sync(policy, 0)
    scorer = Scorer(TASK, WeightedSum({"exact": 1.0}))
    sampling = Sampling(max_tokens=3)
    return Context(TASK, engine, policy, sampling, seed=0, iteration=iteration, group_size=group_size, collector=scorer)


def test_the_curve_by_hand():
    # k 10, mu -.5, b .1: .1 + .9 / (1 + e^2) = .207283; -mu - log(.9 / .4 - 1) / 10 = .477686
    curve = Response(10, -0.5, 0.1)
    assert curve(0.3) == pytest.approx(0.207283, abs=1e-6)
    assert curve.share_for(0.5) == pytest.approx(0.477686, abs=1e-6)
    assert curve(curve.share_for(0.5)) == pytest.approx(0.5)
    assert Response(10, -0.5, 0.6).share_for(0.5) == 0  # solved often enough without a hint
    assert Response(10, -2.0, 0.0).share_for(0.5) == 1


@pytest.mark.parametrize("truth", [Response(8, -0.3, 0.0), Response(15, -0.7, 0.1), Response(5, -0.9, 0.2)])
def test_rounds_find_the_share_of_half_accuracy(truth):
    """Four rounds that measure exactly: the last one is near the target, wherever the curve is."""
    share, points = 0.95, []
    for _ in range(4):
        points.append((share, truth(share)))
        share = fit_response(points).share_for(0.5)
    assert abs(truth(share) - 0.5) < 0.1


def test_points_at_one_share_are_averaged():
    assert fit_response([(0.4, 0.0), (0.4, 1.0), (0.9, 1.0)]) == fit_response([(0.4, 0.5), (0.9, 1.0)])


def test_rows_begin_with_the_hint_and_the_policy_goes_on(policy):
    ctx = context(policy)
    rollout = Hinted(rounds=2)
    episodes = rollout.collect([(0, TASK[0]), (3, TASK[1])], ctx)
    assert [(e.group, e.sample_index) for e in episodes] == [(s, a) for s in (0, 3) for a in range(8)]
    solution = policy.encode_demonstration(TASK[0].observation, TASK.demonstrate(0))[:-1]
    first = episodes[0]
    length = len(solution) - 1  # (L - 1) / L of L tokens
    assert first.info["hint"] == length and first.info["shown"] == pytest.approx(length / len(solution))
    done = first.turns[0].completion
    assert torch.equal(done.action[:length], solution[:length])
    assert done.action_mask.tolist() == [False] * length + [True] * (len(done.action) - length)
    assert done.output.startswith(TASK.demonstrate(0)[:length])
    batch = collate(episodes, policy)
    with torch.no_grad():
        out = policy(batch)
    assert_close(
        out.logprobs[batch["action_mask"]], batch["behavior_logprobs"][batch["action_mask"]]
    )  # sampled after the hint, scored so
    assert torch.equal(batch["imitation_mask"].sum(1), torch.tensor([e.info["hint"] for e in episodes]))
    assert batch["prompt_id"].unique().numel() == 2  # the prompt is read without hints, once for all of its completions
    surprise = HintNegativeLogLikelihood()(out, batch)
    assert_close(surprise[0], -out.logprobs[0, :length].sum() / (len(done.action) - length))


@pytest.mark.parametrize("weighting", [ConstantLength(12), TokenMean(), SequenceMean()])
def test_each_hint_token_has_the_weight_of_a_sampled_token_of_its_row(weighting):
    """The gradient of the loss by the log-prob of each token: minus the weight of the row's sampled tokens."""
    hints, ends = torch.tensor([[10], [2], [0]]), torch.tensor([[12], [9], [4]])
    places = torch.arange(12)
    imitated, sampled = places < hints, (places >= hints) & (places < ends)
    batch = Batch({"imitation_mask": imitated, "action_mask": sampled})
    batch["loss_weights"] = weighting(batch, lambda value: value)
    logprobs = torch.zeros(3, 12, requires_grad=True)
    out = PolicyOutput(logprobs, torch.zeros(3, 12))
    loss, _ = Objective({"hint": HintNegativeLogLikelihood()})(out, batch)
    (slopes,) = torch.autograd.grad(loss, logprobs)
    for row in range(3):
        weight = batch["loss_weights"][row, sampled[row]][0]
        assert_close(-slopes[row], torch.where(imitated[row], weight, 0.0))
    if isinstance(weighting, ConstantLength):
        assert_close(-slopes[0].sum(), torch.tensor(10 / (3 * 12)))  # the longest hint counts most


def test_the_recipe_fits_the_curve_to_the_papers_eight_completions_and_comes_back_to_a_problem():
    plain = compose_words(("recipe=seele",))
    data, rounds = plain.data, instantiate(plain.data.rollout).rounds
    assert (rounds, data.group_size) == (4, 32)  # four rounds of eight
    visits = plain.trainer.max_epochs * data.num_prompts / len(instantiate(data.task, _convert_="all"))
    assert visits >= 3  # in the second and later ones the share of the last visit is shown


def test_shares_are_remembered_for_the_next_visit(policy):
    ctx, rollout = context(policy), Hinted(rounds=2)
    episodes = rollout.collect([(0, TASK[5])], ctx)
    rollout.observe([[episode.light() for episode in episodes]])
    share = rollout.known[5]
    assert 0 <= share <= 1 and share == episodes[-1].info["next_share"]
    resumed = Hinted(rounds=2)
    resumed.load_state_dict(rollout.state_dict())
    again = resumed.collect([(0, TASK[5])], context(policy, iteration=1))
    assert again[0].info["shown"] == share
    fixed = Hinted(rounds=1, hint_fraction=0.5).collect([(0, TASK[5])], ctx)
    assert len({e.info["hint"] for e in fixed}) == 1 and fixed[0].info["next_share"] == 0.5


def test_a_failed_request_is_no_point_of_the_curve_and_stays_an_episode(policy):
    ctx = context(policy)
    sample = ctx.engine.sample

    def fail_first(requests, sampling):
        done = sample(requests, sampling)
        return [replace(done[0], ended="error"), *done[1:]]

    ctx.engine.sample = fail_first
    rollout = Hinted(rounds=2)
    episodes = rollout.collect([(0, TASK[0])], ctx)
    assert len(episodes) == 8 and [e.ended == "error" for e in episodes].count(True) == 2  # one in each round
    assert all("next_share" in e.info for e in episodes)
    alone = Hinted(rounds=8).collect([(0, TASK[0])], ctx)  # every round is one failed request: nothing is known
    assert {e.ended for e in alone} == {"error"} and len({e.info["next_share"] for e in alone}) == 1


def test_refusals(policy):
    with pytest.raises(ValueError, match=r"rounds=3 do not divide 8.*data\.group_size"):
        Hinted(rounds=3).collect([(0, TASK[0])], context(policy))
    with pytest.raises(KeyError, match=r"'nothing' is no score.*exact"):
        Hinted(rounds=1, score_name="nothing").collect([(0, TASK[0])], context(policy))
    for wrong in ({"rounds": 0}, {"target": 1.0}, {"hint_fraction": 2.0}):
        with pytest.raises(ValueError, match="rollout"):
            Hinted(**wrong)
    assert np.isfinite(fit_response([(0.5, 0.5)]).share_for(0.5))


def test_an_accuracy_that_no_hint_changes():
    """Guessing reaches it, or nothing but the whole solution does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Response(10, -0.5, 0.5).share_for(0.5) == 0
        assert Response(10, -0.5, 0.1).share_for(1.0) == 1


def test_the_prior_by_hand():
    """.002 for a place of .5, a floor of .2 away from -.5 and .1; .002 log(5)^2 = .005181 for a slope of 50."""
    slope, place, floor, penalty = _grid.__wrapped__()

    def at(*values):
        distance = sum(np.abs(part - value) for part, value in zip((slope, place, floor), values))
        assert distance.min() < 1e-9
        return penalty[distance.argmin()]

    expected = {(-0.5, 0.1): 0, (-1.0, 0.1): 1, (0.0, 0.1): 1, (-0.5, 0.3): 1, (-0.5, 0.5): 4, (0.0, 0.5): 5}
    for values, units in expected.items():
        assert at(50.0, *values) == pytest.approx(0.005180580 + 0.002 * units, abs=1e-8)


def test_a_round_is_a_point_of_the_curve():
    """Two of four answers have a score of 1; without a valid one the share stays."""
    prompt = TASK[0]
    episodes = [Episode(prompt, 0, i, scores={"exact": value}) for i, value in enumerate((1.0, 0.0, 1.0, 0.5))]
    visit = SimpleNamespace(share=0.75, episodes=[], points=[], prompt=prompt)
    Hinted()._learn(visit, [replace(episode, ended="error") for episode in episodes])
    assert visit.points == [] and visit.share == 0.75 and len(visit.episodes) == 4
    Hinted()._learn(visit, episodes)
    assert visit.points == [(0.75, 0.5)]


def test_the_progress_of_the_rounds(policy):
    calls = []
    ctx = replace(context(policy), progress=lambda *values: calls.append(values))
    Hinted(rounds=2).collect([(0, TASK[0])], ctx)
    assert [call for call in calls if call[0] == "rollout"] == [("rollout", 1, 2), ("rollout", 2, 2)]


def test_a_hint_without_a_sampled_token_counts_as_with_one():
    batch = Batch(imitation_mask=torch.tensor([[True, True]]), action_mask=torch.zeros(1, 2).bool())
    out = PolicyOutput(torch.tensor([[-1.0, -2.0]]), torch.zeros(1, 2))
    assert HintNegativeLogLikelihood()(out, batch).tolist() == [3.0]
