"""Values of states by continuations, advantages of steps by hand, and what a learner makes of them."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.advantages.vine_ppo import SegmentAdvantage, StepValues, segment_advantage, whole
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer, score
from mmrl.rollouts.text.single_turn import SingleTurn
from tests.laws.example import Example
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting

LAWS = [Example(SegmentAdvantage(0.9))]

REWARD = WeightedSum({"exact": 1.0})


EOS = POLICY.tokenizer.eos_token_id


class Tries:
    """An engine that answers the prompt in three lines, and succeeds from each state as often as a list says."""

    def __init__(self, successes):
        self.successes, self.asked = dict(enumerate(successes)), []

    def sample(self, requests, sampling):
        first = not self.asked
        self.asked.append(len(requests))
        return [self._one(r, "a\nb\n7" if first else self._from(r)) for r in requests]

    def _from(self, request):
        lines = 0 if request.prefix is None else POLICY.decode(request.prefix.tolist()).count("\n")
        self.successes[lines] -= 1
        return "7" if self.successes[lines] >= 0 else "x"

    def _one(self, request, text):
        ids = torch.cat([POLICY.tokenize(text), torch.tensor([EOS])])
        return Completion(
            POLICY.encode(request.observation), ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), text,
            extra={"temperature": torch.tensor(1.0)},
        )  # fmt: skip


def played(rollout, engine, sampling=None, group_size=1, slots=(1,)):
    task = Counting()
    ctx = Context(
        task,
        engine,
        POLICY,
        sampling or Sampling(max_tokens=20),
        seed=0,
        iteration=0,
        group_size=group_size,
        collector=Scorer(task, REWARD),
    )
    episodes = rollout.collect([(slot, task[slot]) for slot in slots], ctx)
    score(episodes, task, REWARD)
    return episodes, ctx


def test_steps_get_what_they_changed():
    # nine tries from each state, of which 4, 6 and 3 succeed, and then the reward 1
    engine = Tries([4, 6, 3])
    episodes, ctx = played(StepValues(9), engine)
    assert engine.asked == [1, 27]
    batch = SegmentAdvantage()(collate(episodes, POLICY), ctx)
    assert batch["segment"].tolist() == [[0, 0, 1, 1, 2, 2]]
    assert_close(batch["values"][0, ::2], torch.tensor([4.0, 6.0, 3.0]) / 9)
    assert_close(batch["advantages"][0], torch.tensor([2.0, 2.0, -3.0, -3.0, 6.0, 6.0]) / 9)
    assert episodes[0].info["counts"] == {"steps/tried": 3}


def test_states_that_completions_share_are_tried_once():
    engine = Tries([99, 99, 99])
    episodes, ctx = played(StepValues(5), engine, group_size=4)
    assert engine.asked == [4, 15]  # the completions are equal
    assert (SegmentAdvantage()(collate(episodes, POLICY), ctx)["advantages"] == 0).all()  # everything succeeds


def test_the_last_step_takes_the_rest():
    episodes, _ = played(StepValues(1, max_steps=2), Tries([9, 9, 9]))
    assert episodes[0].turns[0].completion.extra["segment"].tolist() == [0, 0, 1, 1, 1, 1]


def test_continuations_end_where_the_completion_would_have_had_to():
    class Long(Tries):
        def _from(self, request):
            return "x" * 19 + "7"

    episodes, _ = played(StepValues(2), Long([]), Sampling(max_tokens=20))
    # from the prompt the seventh is the twentieth token; from later states there is no room for it
    assert episodes[0].turns[0].completion.value.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_completions_are_those_of_a_single_turn_and_are_scored_as_sampled():
    local = LocalEngine()
    local.sync(POLICY, 0)
    sampling = Sampling(max_tokens=6)
    episodes, _ = played(StepValues(3, split="e"), local, sampling, group_size=3, slots=(1, 2))
    plain, _ = played(SingleTurn(), local, sampling, group_size=3, slots=(1, 2))
    assert [e.output for e in episodes] == [e.output for e in plain]
    batch = collate(episodes, POLICY)
    mask = batch["action_mask"]
    with torch.no_grad():
        assert_close(POLICY(batch).logprobs[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
    assert ((batch["values"] >= 0) & (batch["values"] <= 1)).all()


def test_tried_values_approach_the_exact_ones():
    """A state after k letters has succeeded with what is drawn next; many tries come near its exact value."""
    local = LocalEngine()
    local.sync(POLICY, 0)
    sampling = Sampling(max_tokens=2)

    def value(prefix):
        logits_of = POLICY.extend(POLICY.encode(Counting()[1].observation), prefix)
        inputs = POLICY.collate([logits_of])
        with torch.no_grad():
            logits = POLICY.model(input_ids=inputs["input_ids"]).logits[0, -1]
        p = logits.softmax(-1)
        digits = POLICY.tokenize("0123456789")
        left = 2 - len(prefix)
        hit = float(p[digits].sum())
        if left == 1:
            return hit
        later = [float(p[i]) * value(torch.tensor([i])) for i in range(len(p)) if i not in digits.tolist() and i != EOS]
        return hit + sum(later)

    episodes, _ = played(StepValues(1000), local, sampling, slots=(1,))
    done = episodes[0].turns[0].completion
    assert float(done.value[0]) == pytest.approx(value(torch.zeros(0, dtype=torch.long)), abs=0.045)


def test_settings_that_try_nothing_are_refused():
    with pytest.raises(ValueError, match=r"rollout\.continuations"):
        StepValues(0)
    with pytest.raises(ValueError, match=r"rollout\.split is empty"):
        StepValues(split="")


def test_each_step_gets_what_it_changed():
    # three steps of 2, 1 and 3 tokens, then the reward 1: 6/9 - 4/9, 3/9 - 6/9, 1 - 3/9
    values = torch.tensor([[4, 4, 6, 3, 3, 3]]) / 9
    segment = torch.tensor([[0, 0, 1, 2, 2, 2]])
    mask = torch.ones(1, 6, dtype=torch.bool)
    out = segment_advantage(values, segment, torch.tensor([1.0]), mask)
    steps = torch.tensor([2.0, -3.0, 6.0]) / 9
    assert_close(out, steps[segment[0]][None])
    assert_close(steps.sum(), torch.tensor(1 - 4 / 9))
    half = segment_advantage(values, segment, torch.tensor([1.0]), mask, gamma=0.5)
    assert_close(half[0, [0, 2, 3]], torch.tensor([3 - 4, 1.5 - 6, 9 - 3]) / 9)


def test_nothing_is_learned_where_every_continuation_succeeds():
    mask = torch.ones(2, 4, dtype=torch.bool)
    segment = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0]])
    assert (segment_advantage(torch.ones(2, 4), segment, torch.ones(2), mask) == 0).all()


def test_what_was_read_between_belongs_to_no_segment():
    values = torch.tensor([[0.5, torch.nan, 0.25, torch.nan], [torch.nan] * 4])
    segment = torch.tensor([[0, 7, 1, -1], [-1] * 4])
    mask = torch.tensor([[True, False, True, False], [False] * 4])
    out = segment_advantage(values, segment, torch.tensor([1.0, 1.0]), mask)
    assert_close(out, torch.tensor([[-0.25, 0, 0.75, 0], [0, 0, 0, 0]]))


def test_the_segment_of_what_was_read_does_not_hide_the_next_choice():
    # the middle has segment 1 and is no choice; V(next) - V = .25 - .5, and 1 - .25
    values, segment = torch.tensor([[0.5, 9.0, 0.25]]), torch.tensor([[0, 1, 1]])
    out = segment_advantage(values, segment, torch.tensor([1.0]), torch.tensor([[True, False, True]]))
    assert_close(out, torch.tensor([[-0.25, 0, 0.75]]))


def test_a_continuation_is_cut_to_the_length_of_a_completion():
    """With four tokens at most and two before it, two remain; a failure stays one."""
    ctx = Context(None, None, POLICY, Sampling(max_tokens=4), seed=0, iteration=0)
    cases = {("abc", "done"): "length", ("ab", "done"): "done", ("abc", "error"): "error", ("a", "length"): "length"}
    for (text, ended), expected in cases.items():
        ids = POLICY.tokenize(text)
        done = Completion({}, ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), text, ended=ended)
        out = whole(done, POLICY.tokenize("xy").tolist(), ctx)
        assert (out.output, out.ended) == ("xy" + text[:2], expected)


def test_a_failed_completion_has_no_states_to_try():
    class Failing(Tries):
        def sample(self, requests, sampling):
            return [replace(done, ended="error") for done in super().sample(requests, sampling)]

    engine = Failing([9, 9, 9])
    played(StepValues(3), engine)
    assert engine.asked == [1]
