"""The step that spoiled a completion, and the pair that is made there."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from mmrl.core.batch import NO_GROUP
from mmrl.core.types import Request
from mmrl.data.collate import collate, learnable
from mmrl.methods.advantages.vine_ppo import StepValues
from mmrl.methods.preferences.per_step_dpo import PitPairs, _continue, find_pit
from tests.methods.advantages.test_vine_ppo import POLICY, Tries, played


def test_the_first_pit_by_hand():
    # advantages .4, -.1, -.7: the third step
    assert find_pit([0.5, 0.9, 0.8, 0.1], 0.25) == 2
    assert find_pit([0.5, 0.9, 0.8, 0.1], 0.05) == 1
    assert find_pit([0.75, 0.5], 0.25) == 0  # as large a drop as the smallest
    assert find_pit([0.0, 0.0, 0.0], 0.25) is None and find_pit([0.2, 0.4, 0.6], 0.25) is None


def spoiled(successes, reward=0.0, group_size=2):
    """Three lines "a", "b", "7" with these successes of nine tries before each line."""
    episodes, ctx = played(StepValues(9), Tries(successes), group_size=group_size)
    for episode in episodes:
        episode.reward = reward
    return episodes, ctx


def test_a_pair_shares_the_steps_before_the_pit():
    # 8, 9 and 2 of 9: the second line lowers the rate by 7 / 9; it is replaced by one that succeeds
    episodes, ctx = spoiled([8, 9, 2])
    ctx = replace(ctx, engine=Ahead([0, 1]))
    preferred, rejected = PitPairs(2)(episodes, ctx)
    assert ctx.engine.prefixes == ["a\n", "a\n"]
    assert (preferred.output, preferred.reward, rejected.output) == ("a\n7", 1.0, "a\nb\n7")
    batch = collate([preferred, rejected], POLICY)
    assert batch["preference"].tolist() == [1, -1] and batch["group"].tolist() == [1, 1]
    assert torch.equal(batch["action"][0, :2], batch["action"][1, :2])
    assert batch["action_mask"].sum(1).tolist() == [4, 6]  # a, line end, 7 and the end; a, b, 7 in lines and the end
    assert "segment" not in batch and "values" not in batch


class Ahead:
    """An engine that goes on with "x" or, where the list has 1, with "7"."""

    def __init__(self, right):
        self.right, self.prefixes = right, []

    def sample(self, requests, sampling):
        self.prefixes += [POLICY.decode(request.prefix.tolist()) for request in requests]
        tries = Tries([])
        return [tries._one(request, "7" if right else "x") for request, right in zip(requests, self.right)]


def test_a_continuation_that_failed_is_not_preferred():
    """All are paid 1, and the first one is an error: the second one is taken, of one completion alone too."""

    class Fails(Ahead):
        def sample(self, requests, sampling):
            first, *others = super().sample(requests, sampling)
            return [replace(first, ended="error"), *others]

    def pay(episodes):
        for episode in episodes:
            episode.reward = 1.0

    for group_size in (1, 2):
        episodes, ctx = spoiled([8, 9, 2], group_size=group_size)
        ctx = replace(ctx, engine=Fails([1, 0]), collector=SimpleNamespace(score=pay))
        preferred, rejected = PitPairs(2)(episodes, ctx)
        assert (preferred.output, preferred.ended, rejected.output) == ("a\nx", "done", "a\nb\n7")


def test_a_continuation_is_no_longer_than_a_completion_may_be():
    """Two choices before the pit, and "7" with the end after it: of 3 choices in all the end is cut off."""
    (episode, *_), ctx = spoiled([8, 9, 2])
    (done,) = Ahead([1]).sample(
        [Request(episode.prompt.observation, 0, prefix=episode.turns[0].completion.action[:2])], None
    )
    whole = _continue(episode, 2, done, replace(ctx, sampling=replace(ctx.sampling, max_tokens=3)))
    assert whole.turns[0].completion.action.tolist() == POLICY.tokenize("a\n7").tolist()[:3]
    assert (whole.output, whole.ended, len(done.action)) == ("a\n7", "length", 2)


def test_no_pit_and_no_right_continuation_give_no_pair():
    episodes, ctx = spoiled([8, 9, 2])
    assert PitPairs(2)(episodes, replace(ctx, engine=Ahead([0, 0]))) == []
    for successes, reward in (([0, 0, 0], 0.0), ([8, 9, 2], 1.0)):  # fails from the start; a right completion
        episodes, ctx = spoiled(successes, reward)
        assert PitPairs(2)(episodes, replace(ctx, engine=None)) == []


def test_a_process_without_a_pair_has_one_masked_row():
    episodes, ctx = spoiled([0, 0, 0])
    part, ctx = PitPairs(2), replace(ctx, engine=None)
    batch = learnable(part(episodes, ctx), episodes, ctx, [part])
    assert batch["preference"].tolist() == [0] and batch["group"].tolist() == [NO_GROUP]
    assert not batch["action_mask"].any() and "segment" not in batch and "values" not in batch


def test_what_is_missing_is_named():
    episodes, ctx = spoiled([8, 9, 2])
    for episode in episodes:
        episode.turns[0].completion.extra.pop("segment")
    with pytest.raises(ValueError, match="rollout=steps"):
        PitPairs()(episodes, ctx)
    with pytest.raises(ValueError, match="continuations must be at least 1"):
        PitPairs(0)
