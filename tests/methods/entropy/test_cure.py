"""Where completions are restarted, and what is trained on in a branch."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.entropy.cure import BranchAtEntropy, rank_candidates
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic()


def test_candidates_by_hand():
    entropy, words = [0.1, 2, 0.3, 1.5, 0.2, 1.8], ["two"] * 6
    assert rank_candidates(entropy, words, 3, 2) == [1, 5, 3]
    assert rank_candidates(entropy, ["a", " b ", "two", "two", "", "two"], 3, 2) == [5, 3, 2]
    assert rank_candidates([9.0], ["two"], 3, 2) == rank_candidates(entropy, ["a"] * 6, 3, 2) == []


@pytest.fixture(scope="module")
def ctx():
    torch.manual_seed(0)
    policy, engine = decided(TextPolicy(config=TINY)).eval(), LocalEngine()
    engine.sync(policy, 0)
    scorer = Scorer(TASK, WeightedSum({"exact": 1.0}))
    return Context(TASK, engine, policy, Sampling(max_tokens=6), 0, 0, group_size=4, collector=scorer)


def branched(ctx, part):
    first = SingleTurn().collect([(slot, TASK[slot]) for slot in (0, 5)], ctx)
    ctx.collector.score(first)
    return first, part(list(first), ctx)


def test_a_group_has_its_completions_and_their_branches(ctx):
    _, result = branched(ctx, BranchAtEntropy(3, candidates=2, min_characters=1))
    groups = group_episodes(result)
    assert [len(group) for group in groups.values()] == [16, 16]  # 4 + 3 * 4
    assert all(sorted(e.sample_index for e in group) == list(range(16)) for group in groups.values())
    with torch.no_grad():
        batch = collate(result, ctx.policy)
        out = ctx.policy(batch)
    own = batch["action_mask"]
    assert_close(out.logprobs[own], batch["behavior_logprobs"][own])  # scored in the context of the kept prefix
    assert batch["prompt_id"].unique().numel() == 2 and own.any(1).all()
    places = {}
    for slot, group in groups.items():
        for number, branch in enumerate(group[4:]):
            origin, done = group[number // 3], branch.turns[0].completion
            cut = branch.info["prefix"]
            assert torch.equal(done.action[:cut], origin.turns[0].completion.action[:cut])
            assert done.action_mask.tolist() == [False] * cut + [True] * (len(done.action) - cut)
            assert len(done.action) <= 6 and "exact" in branch.scores
            assert branch.output == ctx.policy.decode(done.action.tolist())
            places.setdefault((slot, number // 3), set()).add(cut)
    assert all(len(cuts) == 1 for cuts in places.values())  # the branches of a completion have one place
    for (slot, number), (cut,) in places.items():
        row = groups[slot][number]
        at = next(i for i, e in enumerate(result) if e is row)
        texts = [ctx.policy.decode([token]) for token in row.turns[0].completion.action.tolist()]
        entropy = out.entropy[at][: len(texts)].tolist()
        assert cut in (rank_candidates(entropy, texts, 2, 1) or [0])


def test_without_a_candidate_the_completion_is_sampled_again(ctx):
    _, result = branched(ctx, BranchAtEntropy(1, min_characters=99))
    assert {e.info["prefix"] for e in result if "prefix" in e.info} == {0}
    assert len({e.output for e in result}) > 8
    assert BranchAtEntropy()([], ctx) == []


def test_refusals():
    for wrong in ({"branches": 0}, {"candidates": 0}, {"rows": 0}):
        with pytest.raises(ValueError, match="branch_at_entropy"):
            BranchAtEntropy(**wrong)


def test_a_text_of_the_least_length_is_a_candidate():
    assert rank_candidates([0.0, 1.0, 2.0], ["ab"] * 3, 3, 2) == [2, 1]


def test_branches_that_fail_leave_their_group(ctx):
    first = SingleTurn().collect([(0, TASK[0])], ctx)
    sample = ctx.engine.sample
    engine = SimpleNamespace(sample=lambda *parts: [replace(done, ended="error") for done in sample(*parts)])
    assert BranchAtEntropy(1)(list(first), replace(ctx, engine=engine)) == first
