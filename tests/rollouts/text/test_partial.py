"""Partial rollouts: cut completions go on with later weights, and every choice keeps the weights that drew it."""

from __future__ import annotations

import time

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise, advance_seed
from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.text.hints import HintedPrompts
from mmrl.rollouts.text.joined import end_at_stop, join, with_versions
from mmrl.rollouts.text.partial import STRIDE, PartialRollout
from mmrl.rollouts.text.single_turn import SingleTurn
from tests.engines.vllm.policies import moved, policy
from tests.tiny_recipes import Counting

STOPS = ("0", "1", "a", "b", "c", "d", "e")
TASK = Counting()
PROMPTS = [(slot, TASK[slot + 3]) for slot in range(3)]


class Run:
    """Iterations of a rollout alone; `change` multiplies the weights after each."""

    def __init__(self, rollout, model, change=1.0, **sampling):
        self.rollout, self.model, self.change, self.iteration = rollout, model, change, 0
        self.sampling = Sampling(**{"max_tokens": 11, "stop": STOPS} | sampling)
        self.engine, self.weights = LocalEngine(), []

    def step(self, prompts=()):
        self.engine.sync(self.model, self.iteration)
        self.weights.append({name: value.clone() for name, value in self.model.state_dict().items()})
        scorer = Scorer(TASK, WeightedSum({"digits": 1.0}))
        numbers = {"seed": 0, "iteration": self.iteration, "group_size": 4}
        ctx = Context(TASK, self.engine, self.model, self.sampling, collector=scorer, **numbers)
        episodes = self.rollout.collect(prompts, ctx)
        if self.change != 1:
            moved(self.model, self.change)
        self.iteration += 1
        return episodes


@pytest.fixture
def model(tmp_path):
    return policy("qwen2", tmp_path)


def ids(episodes):
    return {(e.group % STRIDE, e.sample_index): (e.turns[0].completion.action.tolist(), e.ended) for e in episodes}


@pytest.mark.parametrize("sampling", [{}, {"top_k": 7}, {"top_p": 0.9, "stop": ("x", "0a", "ab", "1b", "ba")}])
@pytest.mark.parametrize("cut", [1, 3, 11])
def test_with_equal_weights_the_completions_are_those_that_were_not_cut(cut, sampling, model):
    whole = Run(SingleTurn(), model, **sampling).step(PROMPTS)
    run = Run(PartialRollout(cut), model, **sampling)
    parts = run.step(PROMPTS)
    for _ in range(-(-11 // cut) - 1):
        parts += run.step()
    assert ids(parts) == ids(whole) and len({ended for _, ended in ids(whole).values()}) == 2
    order = {(e.group, e.sample_index): e for e in whole}
    for episode in parts:
        one, other = (
            episode.turns[0].completion,
            order[episode.group % STRIDE, episode.sample_index].turns[0].completion,
        )
        assert_close(one.behavior_logprobs, other.behavior_logprobs, atol=2e-5, rtol=0)
        assert one.output == other.output and torch.equal(one.observation["input_ids"], other.observation["input_ids"])
        for name in other.extra:
            assert torch.equal(one.extra[name], other.extra[name])
    assert run.rollout.metrics() == {"rollout/unfinished": 0.0}


def test_log_probs_are_those_of_the_weights_that_drew_each_token(model):
    """By brute force: the plain network on prompt and tokens so far, with the weights of every version."""
    run = Run(PartialRollout(3), model, change=1.05, stop=("0", "a"))
    episodes = run.step(PROMPTS)
    for _ in range(3):
        episodes += run.step()
    assert len(episodes) == 12 and run.rollout.max_age(run.sampling) == 3
    drawn_by = set()
    for episode in episodes:
        done = episode.turns[0].completion
        versions = done.extra["choice_versions"].tolist()
        assert versions == [t // 3 for t in range(len(versions))] and done.policy_version == 0
        drawn_by.update(versions)
        context = done.observation["input_ids"].tolist()
        for token, version, logprob in zip(done.action.tolist(), versions, done.behavior_logprobs.tolist()):
            model.load_state_dict(run.weights[version])
            with torch.no_grad():
                expected = model.model(torch.tensor([context])).logits[0, -1].log_softmax(-1)[token]
            assert logprob == pytest.approx(float(expected), abs=2e-5)
            context.append(token)
    assert drawn_by == {0, 1, 2, 3}
    batch = collate(episodes, model)
    assert batch["choice_versions"].shape == batch["action"].shape and (batch["policy_version"] == 0).all()


def test_a_group_is_learned_from_when_its_last_completion_has_ended(model):
    """New groups are begun beside it; numbers of groups are unique, and a process without a row has one that is cut."""
    run = Run(PartialRollout(4), model, stop=())
    assert run.step(PROMPTS[:1]) == []
    (spare,) = run.rollout.spare_episodes()
    assert spare.ended == "cut" and spare.scores and len(spare.turns[0].completion.action) == 4
    assert run.step(PROMPTS[:1]) == [] and run.rollout.metrics() == {"rollout/unfinished": 8.0}
    episodes = run.step(PROMPTS[:1])
    assert [e.group for e in episodes] == [2 * STRIDE] * 4 and run.rollout.spare_episodes() == []
    assert {e.group for e in run.step(PROMPTS[:1])} == {2 * STRIDE}
    first, second = (ids(part) for part in (episodes, run.step()))
    assert first.keys() == second.keys() and first != second  # the draws are those of their own iterations


def test_a_state_in_the_middle_is_the_rollout(model):
    runs = [Run(PartialRollout(3), model, stop=()) for _ in range(2)]
    for run in runs:
        run.step(PROMPTS)
        run.step(PROMPTS[:1])
    state = runs[0].rollout.state_dict()
    runs[0].rollout = PartialRollout(3)
    runs[0].rollout.load_state_dict(state)
    assert runs[0].rollout.state_dict() == state  # before anything is sampled
    for _ in range(2):
        restored, other = (run.step() for run in runs)
        assert ids(restored) == ids(other)
    state["groups"][0]["key"] = "counting/train/39"
    runs[0].rollout.load_state_dict(state)
    with pytest.raises(ValueError, match=r"counting/train/39.*is 'counting/train/3'; resume with the same task"):
        runs[0].step()


def test_held_out_completions_are_not_cut(model):
    engine = LocalEngine()
    engine.sync(model, 0)
    ctx = Context(TASK, engine, model, Sampling(max_tokens=5), seed=0, iteration=0, purpose="eval")
    (episode,) = PartialRollout(2).collect(PROMPTS[:1], ctx)
    assert len(episode.turns[0].completion.action) == 5 and episode.ended == "length"


class Slow(LocalEngine):
    def sample(self, requests, sampling):
        time.sleep(0.05)
        return super().sample(requests, sampling)


def test_a_time_limit_ends_after_the_segment_in_which_it_falls(model):
    for seconds, lengths in ((0.01, [2]), (60.0, [11])):
        run = Run(PartialRollout(cut_seconds=seconds, segment_tokens=2), model, stop=())
        run.engine = Slow()
        run.step(PROMPTS[:1])
        group = run.rollout._groups
        assert [len(part.action) for one in group for part in one.parts[:1]] == lengths or not group
        assert bool(group) == (seconds < 1) and run.rollout.max_age(run.sampling) == 5
    both = Run(PartialRollout(cut_tokens=5, cut_seconds=60.0, segment_tokens=2), model, stop=())
    both.step(PROMPTS[:1])
    assert {len(part.action) for one in both.rollout._groups for part in one.parts} == {5}


def test_the_draws_of_a_continuation_follow_those_before():
    assert torch.equal(Noise([advance_seed(2**64 - 5, 7)]).uniform(4), Noise([2**64 - 5]).uniform(11)[:, 7:])


def test_a_stop_string_may_begin_before_the_cut():
    """'ab' is complete with the first token after the cut, and with it the kept ids of later choices fall away."""
    columns = {"support_sizes": torch.tensor([1, 2]), "packed_support_ids": torch.tensor([4, 5, 6])}
    parts = [
        with_versions(
            Completion({}, torch.tensor(actions), torch.tensor([-1.0, -2.0]), torch.ones(2).bool(), "", version)
        )
        for actions, version in (([3, 1], "cut"), ([2, 9], "length"))
    ]
    parts = [Completion(**{**vars(part), "extra": {**part.extra, **columns}}) for part in parts]
    joined = join(*parts)
    assert joined.action.tolist() == [3, 1, 2, 9] and joined.extra["packed_support_ids"].tolist() == [4, 5, 6] * 2

    def stops(rows):
        return torch.tensor([rows[0, -2:].tolist() == [1, 2]])

    done = end_at_stop(joined, 2, stops, reach=8)
    assert (done.action.tolist(), done.ended) == ([3, 1, 2], "done")
    assert done.extra["packed_support_ids"].tolist() == [4, 5, 6, 4] and len(done.extra["choice_versions"]) == 3
    assert end_at_stop(joined, 3, stops, reach=8) is joined  # what ended before the cut would not have gone on


def test_refusals(model):
    with pytest.raises(ValueError, match=r"cuts nothing: set rollout.cut_tokens or rollout.cut_seconds"):
        PartialRollout()
    for wrong in ({"cut_tokens": 0}, {"cut_seconds": 0.0}, {"cut_tokens": 1, "segment_tokens": 0}):
        with pytest.raises(ValueError, match=rf"rollout\.{list(wrong)[-1]}"):
            PartialRollout(**wrong)
    with pytest.raises(ValueError, match=r"more than 2047; raise rollout\.cut_tokens"):
        Run(PartialRollout(1), model, max_tokens=4000).step(PROMPTS)
    with pytest.raises(ValueError, match=r"sampling\.annealing"):
        Run(PartialRollout(1), model, annealing={}).step(PROMPTS)
    with pytest.raises(ValueError, match="use single_turn"):
        HintedPrompts(PartialRollout(1))
