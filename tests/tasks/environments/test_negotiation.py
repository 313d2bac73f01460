"""Negotiation: the partner's rule, by hand."""

import pytest

from mmrl.core.types import Prompt
from tasks.negotiation import Negotiation
from tasks.negotiation.task import Deal

# worth 10 to each side: 2 books, 1 hat, 3 balls
DEAL = Deal(counts=(2, 1, 3), values=(1, 2, 2), partner_values=(2, 3, 1), concession=3)


def reset(**options):
    environment = Negotiation(**options).make_environment()
    return environment, environment.reset(Prompt("negotiation/train/0", info={"problem": DEAL}))


def test_the_partner_demands_less_in_every_turn():
    assert [DEAL.demand(turn) for turn in range(5)] == [9, 6, 3, 0, 0]
    # demands 9 of 10: it leaves one ball
    assert DEAL.offer(0) == (0, 0, 1) and DEAL.best(0) == (0, 0, 1)
    assert DEAL.partner_worth((0, 0, 3)) == 7 and DEAL.partner_worth((0, 1, 1)) == 6


def test_an_unacceptable_proposal_is_answered_by_an_offer_that_can_be_accepted():
    environment, first = reset(discount=0.9)
    assert first.scores == {"exact": 0.0, "value": 0.0, "deal": 0.0}
    assert not environment.step("accept").valid  # there is no offer yet
    step = environment.step("propose 2 1 3")
    assert step.text == f"\nNo. You get {' '.join(map(str, DEAL.offer(1)))}.\n>" and not step.done
    step = environment.step("Accept")
    assert step.terminated and step.scores["deal"] == 1
    assert step.reward == pytest.approx(DEAL.worth(DEAL.offer(1), DEAL.values) / 10 * 0.9**2)


def test_a_deal_is_worth_its_points_less_by_every_turn_before():
    # best deals by turn: 2 points, then balls alone 6 * 0.9, then (0, 1, 3) leaves 4 and is worth 8 * 0.81
    environment, _ = reset(discount=0.9)
    assert environment.rewards[:4] == pytest.approx([0.2, 0.6 * 0.9, 0.8 * 0.81, 1.0 * 0.729])
    environment.step("propose 2 1 3")
    environment.step("propose 2 1 3")
    step = environment.step("propose 0 1 3")
    assert step.terminated and step.reward == pytest.approx(0.8 * 0.81)
    assert step.scores == {"exact": 0.0, "value": pytest.approx(0.648 / 0.729), "deal": 1.0}


@pytest.mark.parametrize("action", ["propose 3 0 0", "propose 1 1", "propose 1 1 1 1", "propose -1 0 0", "deal"])
def test_other_words_are_no_proposal(action):
    environment, _ = reset()
    step = environment.step(action)
    assert not step.valid and not step.done and step.reward == 0


def test_all_items_are_worth_ten_to_both_sides():
    task = Negotiation()
    for index in range(20):
        deal = task.problem(index)
        assert deal.worth(deal.counts, deal.values) == deal.worth(deal.counts, deal.partner_values) == 10
    with pytest.raises(ValueError, match="concessions"):
        Negotiation(concessions=(3, 1))
