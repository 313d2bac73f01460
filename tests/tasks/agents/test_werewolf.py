"""Werewolf: what the players of a deal know, and what demonstrated players say and vote."""

import re

import pytest

from tasks.werewolf.task import GameMoves, RoleDeal, Werewolf


def test_a_deal_by_hand():
    deal = RoleDeal(("villager", "seer", "villager", "wolf"), 3, 0)
    prompt = Werewolf().write_prompt(deal, "werewolf/train/0")
    assert prompt.info["private"] == ["1 villager", "2 seer 4 bad", "3 villager", "4 wolf"]
    assert prompt.info["wolf"] == 3 and prompt.answer == "4"
    assert RoleDeal(deal.roles, 0, 0).write_private(1) == "2 seer 1 ok"


def test_all_deals_occur_and_games_are_split_by_their_numbers():
    task = Werewolf(count=1500, held_out=300)
    deals = {(problem.roles, problem.looked) for problem in map(task.problem, range(1500))}
    assert len(deals) == 4 * 3 * 3  # seats of the wolf and the seer, and whom the seer has looked at
    numbers = [{each.problem(i).number for i in range(len(each))} for each in (task, task.on("held_out"))]
    assert not numbers[0] & numbers[1]


def test_an_honest_seer_names_the_wolf_and_trusting_players_vote_for_the_accused():
    task = GameMoves(honest=1.0, silent=1.0, trusting=1.0)
    for index in range(60):
        deal = task.problem(index)
        speeches, votes = task.play(index)
        seer = deal.roles.index("seer")
        accused = [re.search(r"\d", speech) for speech in speeches]
        if deal.looked == deal.wolf:
            assert accused[seer][0] == str(deal.wolf + 1) and votes[seer] == str(deal.wolf + 1)
            others = [vote for player, vote in enumerate(votes) if player != deal.wolf]
            assert set(others) == {str(deal.wolf + 1)}
        else:
            assert accused == [None] * 4
        assert all(vote != str(player + 1) for player, vote in enumerate(votes))


def test_demonstrations_are_what_the_players_read_and_write():
    task = GameMoves(honest=1.0)
    prompt = next(p for p in map(task.__getitem__, range(50)) if p.info["private"][1] == "2 seer 4 bad")
    (moves,) = task.demonstrations([prompt])
    views, texts = [raw["messages"][0]["content"] for raw, _ in moves], [text for _, text in moves]
    assert views[0] == f"{prompt.info['private'][0]}||say" and len(moves) == 8
    assert views[1] == f"2 seer 4 bad|{texts[0]}/|say" and texts[1] in ("4 bad", "vote 4")
    assert views[5] == f"2 seer 4 bad|{'/'.join(texts[:4])}/|vote" and texts[5] == "4"


def test_shares_are_checked():
    with pytest.raises(ValueError, match="silent"):
        GameMoves(silent=1.5)
