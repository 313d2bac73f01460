"""What is read quickly is what the network reads, bit for bit, whatever happens to its weights in between."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from mmrl.capture.contexts import MAX_CONTEXTS, MIN_CALLS, CapturedContexts, _name_parts
from tests.laws.heads import build_policy, raws


def seen(policy, rows, at=0):
    """Contexts of one instruction, as they are collated."""
    rng = np.random.default_rng(at)
    text = {"instruction": "reach the red cube", "image": rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)}
    return policy.collate([policy.encode({**raw, **text}) for raw in raws(rows)])


class Watched:
    """A policy, what replays its encoder, and how often its own code encodes."""

    def __init__(self, **words):
        self.policy, self.reads = build_policy("flow_sde", **words).eval(), 0
        self.policy.captured = CapturedContexts()
        self.own = self.policy.encode_context

        def counted(observation, complete=None):
            self.reads += 1
            return self.own(observation, complete)

        self.policy.encode_context = counted

    def check(self, observation):
        """Encode, compare with the network, and say how often its code ran."""
        before = self.reads
        with torch.no_grad():
            result, ran = self.policy.captured(self.policy, observation), self.reads - before
            expected = _name_parts(self.own(observation))
        parts = _name_parts(result)
        assert parts.keys() == expected.keys()
        assert all(torch.equal(part, expected[name]) for name, part in parts.items())
        return ran


def settle(watched, rows=1, calls=MIN_CALLS + 3):
    return [watched.check(seen(watched.policy, rows, at=k)) for k in range(calls)]


@pytest.mark.parametrize("words", [{}, {"value_head": True}, {"freeze_vision": True}])
def test_replays_are_the_network_to_the_bit(words):
    watched = Watched(**words)
    # every call before, then one that is recorded and compared, which runs the code twice
    assert settle(watched) == [1] * MIN_CALLS + [2, 0, 0]


def test_weights_that_move_are_followed():
    watched = Watched()
    settle(watched)
    with torch.no_grad():  # in place, as an optimiser and `load_state_dict` do
        for weight in watched.policy.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    # the network itself until they have settled again; then the old record is compared and believed
    assert settle(watched) == [1] * (MIN_CALLS + 1) + [0, 0]


def test_weights_that_are_replaced_are_followed():
    watched = Watched()
    settle(watched)
    for weight in watched.policy.parameters():
        weight.data = weight.data + 0.01  # elsewhere in memory, as after `Module.to`
    assert settle(watched) == [1] * MIN_CALLS + [2, 0, 0]


def test_training_reads_by_itself():
    """Weights that move between few reads are never recorded, nor is what a gradient goes through."""
    watched = Watched()
    for k in range(3 * MIN_CALLS):
        assert watched.check(seen(watched.policy, 1, at=k)) == 1
        if k % 8 == 0:
            with torch.no_grad():
                next(watched.policy.parameters()).mul_(1.001)
    settle(watched)
    encoded = watched.policy.captured(watched.policy, seen(watched.policy, 1))
    assert encoded.prefix[0].requires_grad


def test_many_contexts_and_filled_up_ones_are_cases_of_their_own():
    watched = Watched()
    settle(watched)
    assert settle(watched, rows=MAX_CONTEXTS + 1) == [1] * (MIN_CALLS + 3)
    short = seen(watched.policy, 2)
    short["instruction"][1, -1] = watched.policy.tokenizer.pad_token_id
    full = seen(watched.policy, 2)
    assert [watched.check(part) for part in (full, short, full, short)] == [2, 2, 0, 0]


def test_a_copy_knows_nothing_of_the_records():
    watched = Watched()
    settle(watched)
    del watched.policy.encode_context
    copy = deepcopy(watched.policy)
    assert copy.captured.graph.graphs == {} and watched.policy.captured.graph.graphs != {}
    with torch.no_grad():
        for weight in copy.parameters():
            weight.add_(0.1)
        observation = seen(copy, 1)
        result, own = copy.captured(copy, observation), copy.encode_context(observation)
    assert all(torch.equal(part, _name_parts(own)[name]) for name, part in _name_parts(result).items())
