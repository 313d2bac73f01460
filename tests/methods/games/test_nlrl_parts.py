"""NLRL: games that end by an error, moves that are none, and parts that a rollout is built of."""

from dataclasses import replace

from mmrl.methods.games.nlrl.improvement import MoveImprovement, MoveImprover
from mmrl.methods.games.nlrl.matches import BoardGames, Match, Move
from mmrl.methods.games.nlrl.values import LanguageMonteCarlo, MoveAggregator, draw_move, write_row
from tests.methods.games.replies import ReplyEngine, complete
from tests.methods.games.test_nlrl import GAMES, WIN, FromWin, context


class Fails(ReplyEngine):
    """An engine whose every completion ends in an error, though its text is a legal move."""

    def sample(self, requests, sampling):
        return [replace(done, ended="error") for done in super().sample(requests, sampling)]


def test_a_failed_request_ends_the_game_without_a_score():
    engine = Fails(lambda view, views: "0")
    ctx = replace(context(None), engine=engine)
    (episode,) = BoardGames().collect([(0, GAMES[0])], ctx)
    assert episode.ended == "error" and episode.info["counts"] == {"game/failed": 1} and len(engine.views) == 1


def test_progress_counts_the_games_that_are_over():
    """X wins at once in the first game, and writes no move in the second."""
    task, notes, texts = FromWin(view="game"), [], iter(["2", "?"])
    ctx = replace(context(lambda view, count, model: next(texts), task), progress=lambda *note: notes.append(note))
    won, lost = BoardGames().collect([(0, task[0]), (1, task[1])], ctx)
    assert notes == [("match", 0, 2), ("match", 2, 2)]
    assert won.info == {"outcome": 1, "counts": {"game/won": 1}} and lost.info["counts"] == {"game/illegal": 1}


def test_games_are_counted_by_their_outcome():
    match = Match(0, GAMES[0], 0, (), None)
    names = []
    for match.outcome in (1, 0, -1):
        names += BoardGames().finish(match).info["counts"]
    assert names == ["game/won", "game/drawn", "game/lost"]


def test_square_0_is_a_move():
    match = Match(0, GAMES[0], 0, (), None, moves=[Move(None, 0, complete("0")), Move(None, -1, complete("?"))])
    assert {draw_move(replace(match, key=(number,)), context(None)).action for number in range(8)} == {0}


def test_rows_without_a_move_or_a_text_are_errors():
    task = FromWin(view="move")
    no_move = context(lambda view, count, model: "?", task)
    for rollout in (MoveImprovement(), LanguageMonteCarlo()):
        (row,) = rollout.collect([(0, task[0])], no_move)
        assert row.ended == "error" and row.info["error"] == "the game has no legal move"
    row = write_row(Match(0, task[0], 0, (), None), task[0], Move(WIN, 2, complete("2")), None)
    assert row.ended == "error" and row.info["error"] == "no text was written"


def test_a_position_without_a_legal_sample_leaves_the_others_their_picks():
    task, other = FromWin(view="move"), "XO......."

    def reply(view, count, model):
        return "wins 1, draws 0, losses 0: good" if model == "value" else "2" if view == WIN else "?"

    decisions = [(Match(0, task[0], 0, (), None), Move(board, 2, complete("2"))) for board in (other, WIN)]
    texts = MoveImprovement(samples=2, answer="{action}")._improve(decisions, context(reply, task))
    assert texts == [None, "2"]


def test_parts_of_a_rollout_are_those_that_it_was_built_with():
    improver, aggregator = MoveImprover(), MoveAggregator()
    assert MoveImprovement(improver=improver).improver is improver
    assert LanguageMonteCarlo(aggregator=aggregator).aggregator is aggregator
    assert MoveImprovement(model="old").sampled_models() == {"old", "value"}
    assert MoveImprovement(model="old", pick="won").sampled_models() == {"old"}
