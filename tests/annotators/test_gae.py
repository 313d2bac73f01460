"""Generalised advantages of batches: over rows, and over the choices within rows."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE, whiten
from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Context, Sampling
from tests.laws.example import Example

LAWS = [
    Example(GAE(0.9, 0.8)),
    Example(GAE(0.9, 0.8, whiten=True)),
    Example(GAE(0.9, 0.8, token_rewards="token_rewards")),
    Example(GAE(0.9, 0.8), per_row=True),
    Example(GAE(0.9, 0.8, whiten=True), per_row=True),
]

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)
NAN = float("nan")


def decisions(bootstrap_value=0.0):
    """Three decisions of one episode, out of order, two choices each; then a one-row episode."""
    return Batch(
        episode=torch.tensor([7, 7, 2, 7]),
        step=torch.tensor([2, 0, 0, 1]),
        reward=torch.tensor([10.0, 0.0, 1.0, 0.0]),
        values=torch.tensor([3.0, 1.0, 0.5, 2.0]),
        bootstrap_value=torch.tensor([bootstrap_value, 0.0, 0.0, 0.0]),
        is_last=torch.tensor([True, False, True, False]),
        action_mask=torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1]]).bool(),
    )


def test_over_rows():
    # delta .8, .7, 7 with gamma .9, lambda .95, as in tests/ops/test_returns.py
    out = GAE(0.9, 0.95)(decisions(), CTX)
    expected = torch.tensor([[7.0, 7.0], [6.515675, 6.515675], [0.5, 0.0], [6.685, 6.685]])
    assert_close(out["advantages"], expected)
    assert_close(out["returns"], torch.tensor([10.0, 7.515675, 1.0, 8.685]))


def test_truncation_bootstraps():
    # 10 + .9 * 4 - 3 = 10.6
    out = GAE(0.9, 0.95)(decisions(4.0), CTX)
    assert_close(out["advantages"][0, 0], torch.tensor(10.6))
    assert_close(out["advantages"][3, 0], torch.tensor(0.7 + 0.855 * 10.6))


def choices():
    """The same three steps as choices: two in the first row around a forced one, one in the second."""
    return Batch(
        episode=torch.tensor([0, 0]),
        step=torch.tensor([1, 0]),
        reward=torch.tensor([10.0, 0.0]),
        values=torch.tensor([[3.0, NAN, NAN], [1.0, NAN, 2.0]]),
        bootstrap_value=torch.tensor([0.0, 0.0]),
        is_last=torch.tensor([True, False]),
        action_mask=torch.tensor([[1, 0, 0], [1, 0, 1]]).bool(),
    )


def test_over_choices_of_several_rows():
    out = GAE(0.9, 0.95)(choices(), CTX)
    assert_close(out["advantages"], torch.tensor([[7.0, 0.0, 0.0], [6.515675, 0.0, 6.685]]))
    assert_close(out["returns"], torch.tensor([[10.0, 0.0, 0.0], [7.515675, 0.0, 8.685]]))


def test_reward_of_a_row_without_choices_goes_to_the_choice_before():
    rows = choices()
    rows["action_mask"][0] = False
    # steps: V = 1, 2, then reward 10 at the second choice: delta = .9*2 - 1, 10 - 2
    out = GAE(0.9, 0.95)(rows, CTX)["advantages"]
    assert_close(out, torch.tensor([[0.0, 0.0, 0.0], [0.8 + 0.855 * 8, 0.0, 8.0]]))
    # and one before any choice belongs to no choice
    rows = choices()
    rows["action_mask"][1] = False
    rows["reward"][1] = 100.0
    assert_close(GAE(0.9, 0.95)(rows, CTX)["advantages"], torch.tensor([[7.0, 0.0, 0.0], [0.0] * 3]))


@pytest.mark.parametrize(
    ("discounts", "expected"), [((1.0, 1.0), [0.7, 0.7, 0.4, 0.3]), ((0.9, 0.95), [0.3646, 0.4850, 0.2865, 0.3])]
)
def test_turn_rewards_by_hand(discounts, expected):
    """Turns of two tokens that earn .2 and 1, V = .5, .5, .6, .7; at .9 and .95: delta = -.05, .24, .03, .3."""
    one_row = Batch(  # the tokens between the turns are the environment's, whose values do not matter
        episode=torch.tensor([0]), step=torch.tensor([0]), reward=torch.tensor([1.0]),
        values=torch.tensor([[0.5, 0.5, 9.0, 0.6, 0.7]]), bootstrap_value=torch.zeros(1), is_last=torch.tensor([True]),
        action_mask=torch.tensor([[1, 1, 0, 1, 1]]).bool(), token_rewards=torch.tensor([[0, 0.2, NAN, 0, 0]]),
    )  # fmt: skip
    out = GAE(*discounts, token_rewards="token_rewards")(one_row, CTX)["advantages"]
    assert_close(out[0, [0, 1, 3, 4]], torch.tensor(expected), atol=5e-5, rtol=0)
    assert out[0, 2] == 0
    a_row_a_turn = Batch(
        episode=torch.tensor([0, 0]), step=torch.tensor([0, 1]), reward=torch.tensor([0.2, 1.0]),
        values=torch.tensor([[0.5, 0.5], [0.6, 0.7]]), bootstrap_value=torch.zeros(2),
        is_last=torch.tensor([False, True]), action_mask=torch.ones(2, 2).bool(),
    )  # fmt: skip
    assert_close(GAE(*discounts)(a_row_a_turn, CTX)["advantages"].flatten(), out[0, [0, 1, 3, 4]])


def test_whitened_over_choices_but_returns_are_not():
    plain, white = GAE(0.9, 0.95)(decisions(), CTX), GAE(0.9, 0.95, whiten=True)(decisions(), CTX)
    inside = white["advantages"][white["action_mask"]]
    assert_close(inside.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    assert_close(inside.std(correction=0), torch.tensor(1.0))
    assert white["advantages"][2, 1] == 0
    assert_close(white["returns"], plain["returns"])


def test_refusals():
    with pytest.raises(ValueError, match="gamma"):
        GAE(gamma=1.1)
    rows = decisions()
    rows["is_last"] = torch.zeros(4).bool()
    with pytest.raises(ValueError, match=r"episodes \[2, 7\] .* is_last=True"):
        GAE()(rows, CTX)
    # an idle row, from which nothing is learned, may stand for its episode
    rows["action_mask"] = torch.zeros(4, 2).bool()
    assert (GAE()(rows, CTX)["advantages"] == 0).all()


def test_whitening_is_over_the_rows_of_all_processes():
    values = torch.tensor([[1.0, 2.0], [4.0, 0.0], [-3.0, 7.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    alone = whiten(values, mask, CTX)
    parts = ((values[:1], mask[:1]), (values[1:], mask[1:]))

    def on(rank: int) -> torch.Tensor:
        """What a process with its own rows gives; what it is told of the others follows from their rows."""
        calls = iter(range(2))
        mean = values[mask].double().mean()

        class Ranks(Collector):
            def gather(self, items):
                if next(calls) == 0:
                    return [(int(m.sum()), float(v[m].double().sum())) for v, m in parts]
                return [float((v[m].double() - mean).square().sum()) for v, m in parts]

        return whiten(*parts[rank], replace(CTX, world_size=2, rank=rank, collector=Ranks()))

    assert_close(torch.cat([on(0), on(1)]), alone, atol=1e-6, rtol=0)


def test_token_rewards_are_added_to_the_row_s_reward():
    # the same as values and rewards of a row per choice: delta .9 * 2 - 1 - .1, .9 * 3 - 2 - .2 and 10 - 3 - .3
    penalty = torch.tensor([[-0.3, NAN, NAN], [-0.1, NAN, -0.2]])
    out = GAE(0.9, 0.95, token_rewards="token_rewards")(choices().with_columns(token_rewards=penalty), CTX)
    last, middle = 6.7, 0.5 + 0.855 * 6.7
    expected = torch.tensor([[last, 0.0, 0.0], [0.7 + 0.855 * middle, 0.0, middle]])
    assert_close(out["advantages"], expected)
    with pytest.raises(ValueError, match="token_rewards=null"):
        GAE(token_rewards="token_rewards")(decisions(), CTX)
