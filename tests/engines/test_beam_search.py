"""Constrained beam search: prefix trees, beams of a table by hand, and all outputs of a policy scored one by one."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.beam_search import Beam, BeamSearchEngine, extend_beams
from mmrl.engines.prefix_tree import PrefixTree
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, decided

A, B, X, Y, Z = range(5)
TABLE = {
    (): {A: 0.5, B: 0.3},  # .2 are outside of the tree
    (A,): {X: 0.5, Y: 0.4},
    (B,): {Z: 0.9},
}


def search_table(num_beams, tree):
    beams = [Beam()]
    while any(tree.children[beam.node] for beam in beams):
        rows = torch.tensor([[TABLE.get(beam.ids, {}).get(i, 1e-9) for i in range(5)] for beam in beams]).log()
        beams = extend_beams(beams, range(len(beams)), rows, tree, num_beams)
    return {beam.ids: math.exp(beam.score) for beam in beams}


def test_beams_of_a_table_by_hand():
    # AX .5 * .5 = .25, AY .5 * .4 = .2, BZ .3 * .9 = .27: one beam follows A, two find the most likely output
    tree = PrefixTree([(A, X), (A, Y), (B, Z)])
    assert search_table(1, tree) == pytest.approx({(A, X): 0.25})
    assert list(search_table(2, tree)) == [(B, Z), (A, X)]
    assert search_table(3, tree) == pytest.approx({(B, Z): 0.27, (A, X): 0.25, (A, Y): 0.2})
    assert search_table(9, tree) == search_table(3, tree)
    assert list(search_table(2, PrefixTree([(A, Y), (A, X)]))) == [(A, X), (A, Y)]


def test_a_complete_beam_stays_while_others_grow():
    tree = PrefixTree([(B,), (A, X), (A, Y)])
    assert search_table(2, tree) == pytest.approx({(B,): 0.3, (A, X): 0.25})


def test_a_prefix_tree_shares_prefixes_and_refuses_what_no_token_ends():
    tree = PrefixTree([(1, 2), (1, 3), (1, 2)])
    assert (len(tree), tree.depth, tree.children) == (2, 2, [{1: 1}, {2: 2, 3: 3}, {}, {}])
    for wrong in ([], [()], [(1,), (1, 2)]):
        with pytest.raises(ValueError, match="end each with"):
            PrefixTree(wrong)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=dict(TINY)), 3.0).eval()


OUTPUTS = ("a", "ab", "abc", "b1", "b2", "c")


def search(policy, num_beams, sampling, max_rows=256, texts=("?", "one more ?", "x")):
    engine = BeamSearchEngine(max_rows)
    engine.sync(policy, 3)
    requests = [
        Request({"messages": ({"role": "user", "content": text},)}, 0, prompt_id=i) for i, text in enumerate(texts)
    ]
    return engine.search_beams(requests, PrefixTree(ids_of(policy)), num_beams, sampling)


def ids_of(policy):
    return [policy.encode_demonstration({}, text).tolist() for text in OUTPUTS]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_all_outputs_have_the_order_and_the_log_probabilities_of_the_policy(policy, temperature):
    found = search(policy, len(OUTPUTS), Sampling(temperature=temperature, max_tokens=4))
    for beams in found:
        assert sorted(done.output for done in beams) == sorted(OUTPUTS)
        assert all(done.ended == "done" and done.policy_version == 3 for done in beams)
        scores = [float(done.behavior_logprobs.sum()) for done in beams]
        assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(OUTPUTS)
        batch = collate([Episode(Prompt("p"), 0, i, [Turn(done)]) for i, done in enumerate(beams)], policy)
        with torch.no_grad():
            scored = policy(batch).logprobs
        assert_close(torch.where(batch["action_mask"], scored, 0), batch["behavior_logprobs"], atol=2e-5, rtol=0)
    assert [done.output for done in found[0]] != [done.output for done in found[1]]  # prompts are read


def test_fewer_beams_and_smaller_batches(policy):
    sampling = Sampling(max_tokens=4)
    several = search(policy, 2, sampling)
    alone = search(policy, 2, sampling, max_rows=2)  # one prompt at a time, so that none is padded
    for beams, others in zip(several, alone, strict=True):
        assert [done.output for done in beams] == [done.output for done in others] and len(beams) == 2
        for done, other in zip(beams, others):
            assert_close(done.behavior_logprobs, other.behavior_logprobs, atol=2e-5, rtol=0)


def test_sampling_that_does_not_fit_is_refused(policy):
    with pytest.raises(ValueError, match="up to 4 tokens"):
        search(policy, 2, Sampling(max_tokens=3))
    with pytest.raises(ValueError, match="top_k"):
        search(policy, 2, Sampling(max_tokens=4, top_k=5))
