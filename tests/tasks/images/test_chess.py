"""Chess: golden positions, disjoint splits, and answers that only look right."""

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from tasks.chess import Chess
from tasks.chess.board import DARK, LIGHT, find_captures, find_mates, name_piece, play_random, render
from tasks.chess.engine import _engine, find_engine, rate_moves
from tasks.chess.task import verify
from tests.tasks.replies import reply

chess = pytest.importorskip("chess")


def test_mates_captures_and_pieces_of_known_positions():
    fools_mate = chess.Board("rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2")
    assert find_mates(fools_mate) == {"d8h4"} and find_captures(fools_mate) == set()
    assert name_piece(fools_mate, "g4") == "white pawn" and name_piece(fools_mate, "e4") == "empty"
    both = chess.Board("4k3/8/8/3q1r2/4P3/8/8/4K3 w - - 0 1")
    assert find_captures(both) == {"e4d5"} and find_mates(both) == set()
    en_passant = chess.Board("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1")
    assert find_captures(en_passant) == {"e5d6"}


def test_the_board_is_drawn_with_white_below():
    board = chess.Board("8/8/8/8/8/8/8/Q7 w - - 0 1")
    image = render(board, 64)
    assert [tuple(image[y, x].tolist()) for y, x in ((1, 1), (1, 9), (57, 57))] == [LIGHT, DARK, LIGHT]
    changed = (image != render(chess.Board(None), 64)).any(2)
    assert changed[56:, :8].any() and changed.sum() == changed[54:, :10].sum()


def test_random_games_are_legal_and_not_over():
    for seed in range(10):
        board = play_random(derive_rng("games", seed), 30)
        assert board.is_valid() and not board.is_game_over()


@pytest.mark.parametrize("kind", ["piece", "move", "mate", "capture"])
def test_every_kind_has_legal_answers(kind):
    task = Chess(kinds=[kind], count=20)
    for index in range(3 if kind == "mate" else 20):
        prompt = task[index]
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
        if kind != "piece":
            legal = {move.uci() for move in chess.Board(prompt.info["fen"]).legal_moves}
            assert set(prompt.answer) <= legal
            assert all(task.score(reply(prompt, move))["exact"] == 0 for move in legal - set(prompt.answer))


@pytest.mark.parametrize(
    ("text", "answers", "exact", "well_formed"),
    [
        ("white queen", ("white queen",), 1, 1),
        ("black queen", ("white queen",), 0, 1),
        ("White queen", ("white queen",), 0, 0),
        ("queen", ("white queen",), 0, 0),
        ("e2e4", ("e2e3", "e2e4"), 1, 1),
        ("e2e5", ("e2e3", "e2e4"), 0, 1),
        ("e2e3 e2e4", ("e2e3", "e2e4"), 0, 0),
        ("", ("e2e3",), 0, 0),
    ],
)
def test_verify(text, answers, exact, well_formed):
    assert verify(text, answers, {}) == {"exact": exact, "format": well_formed, "quality": exact}


def test_no_board_is_in_both_splits():
    task = Chess(moves=(2, 3))
    boards = [{task.split_key(task.on(s).problem(i)) for i in range(200)} for s in ("train", "held_out")]
    assert not boards[0] & boards[1]
    np.testing.assert_array_equal(task[0].images[0], Chess(moves=(2, 3))[0].images[0])


def test_a_move_earns_its_expected_score_relative_to_the_best():
    ratings = {"e2e4": 0.5, "e2e3": 0.4, "f2f3": 0.0}
    assert [verify(move, ("e2e4",), ratings)["quality"] for move in (*ratings, "e2e5")] == [1.0, 0.8, 0.0, 0.0]


@pytest.mark.skipif(find_engine() is None, reason="Stockfish is not installed")
def test_stockfish_finds_the_mate_and_keeps_the_queen():
    mate = rate_moves("rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2", 4)
    assert mate["d8h4"] == 1.0 and max(mate, key=mate.get) == "d8h4"
    # the white queen on d4 is attacked by the pawn on e5: all moves that leave it there lose it
    board = chess.Board("rnbqkbnr/pppp1ppp/8/4p3/3Q4/2P5/PP2PPPP/RNB1KBNR w KQkq - 0 4")
    ratings = rate_moves(board.fen(), 6)
    assert set(ratings) == {move.uci() for move in board.legal_moves}
    assert max(ratings, key=ratings.get).startswith("d4") and ratings["a2a3"] < 0.1
    rate_moves.cache_clear()
    assert rate_moves(board.fen(), 6) == ratings


@pytest.mark.skipif(find_engine() is None, reason="Stockfish is not installed")
def test_the_expert_plays_the_best_move_and_a_guess_is_seldom_as_good():
    task = Chess(kinds=["best"], count=5, moves=(10, 30), depth=4)
    for index in range(len(task)):
        prompt = task[index]
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
        qualities = [task.score(reply(prompt, move))["quality"] for move in prompt.info["ratings"]]
        assert max(qualities) == 1.0 and sorted(qualities)[len(qualities) // 2] <= 0.9


def test_a_missing_engine_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("tasks.chess.engine.find_engine", lambda: None)
    _engine.cache_clear()
    with pytest.raises(FileNotFoundError, match="apt-get install stockfish"):
        Chess(kinds=["best"])[0]


@pytest.mark.parametrize(
    "options", [{"kinds": ["?"]}, {"moves": (0, 2)}, {"moves": (3, 2)}, {"size": 70}, {"depth": 0}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="chess"):
        Chess(**options)
