"""Tic-tac-toe: rules, the known number of positions, values by enumeration, and the three views."""

import pytest

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode
from tasks.tictactoe.board import TicTacToeRules, list_moves, list_positions, value_of
from tasks.tictactoe.task import TicTacToe

RULES = TicTacToeRules()


def test_lines_win():
    assert [RULES.outcome(board) for board in ("XXXOO....", "OX.OX.O.X", "X.O.XO..X", "XOXXOOOXX", "X........")] == [
        1, -1, 1, 0, None,
    ]  # fmt: skip
    assert RULES.move("X........", 4) == "X...O...." and RULES.actions("XO.......") == list(range(2, 9))
    with pytest.raises(ValueError, match="taken"):
        RULES.move("X........", 0)


def test_all_positions_are_listed():
    """Of the 5,478 positions that can be reached 958 are over; X is to move in 2,423 of the others."""
    assert len(list_positions()) == len(set(list_positions())) == 2423
    assert len(list_moves()) == sum(board.count(".") for board in list_positions())


def test_values_by_hand():
    """X fills the last square of a drawn board: 0; of X and O in turn, X plays best and O draws."""
    assert value_of("XOXXOOOX.") == 0 and value_of("XXXOO....") == 1
    # X at 2 wins; elsewhere less, since O may win with 5
    assert value_of("XX.OO....") == 1
    assert value_of("OO.XXOX..") == 1  # X at 2: a diagonal of 2, 4 and 6
    # O is to move: with 7 it has the column of 1, 4 and 7; after 8 X fills 7, a draw: (-1 + 0) / 2
    assert value_of("XOXXOXO..") == -0.5


def test_views():
    games, moves, values = (
        TicTacToe(view=view, board="{board}:", value="{board}{action}=") for view in ("game", "move", "value")
    )
    assert games[3].messages[0]["content"] == ".........:"
    assert moves.find("XX.OO....").messages[0]["content"] == "XX.OO....:"
    prompt = values.find("XX.OO....", 2)
    assert prompt.messages[0]["content"] == "XX.OO....2=" and values[prompt.index] == prompt
    with pytest.raises(ConfigError, match=r"set task\.view=value"):
        moves.find("XX.OO....", 2)
    with pytest.raises(ConfigError, match="view must be"):
        TicTacToe(view="board")


def test_scores():
    assert TicTacToe().score(Episode(TicTacToe()[0], 0, 0, info={"outcome": 0})) == {"won": 0.5, "exact": 0.0}
    moves = TicTacToe(view="move")
    for index in range(0, 2000, 97):
        position = moves[index].info["position"]
        assert int(moves.demonstrate(index)) in RULES.actions(position)
