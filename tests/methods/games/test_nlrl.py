"""NLRL: games, evaluations by counting continuations, the selection mask, and the buffers of its rounds."""

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.types import Context, Sampling
from mmrl.methods.games.nlrl.improvement import MoveImprovement, MoveImprover, count_actions
from mmrl.methods.games.nlrl.matches import BoardGames, read_action
from mmrl.methods.games.nlrl.values import (
    LanguageMonteCarlo,
    MoveAggregator,
    PlayedGame,
    compile_counts,
    read_value,
)
from mmrl.rewards.judges.base import LanguageJudge
from mmrl.rewards.judges.questions import Reply
from tasks.cyclic.task import Cyclic
from tasks.tictactoe.board import TicTacToeRules
from tasks.tictactoe.task import TicTacToe
from tests.methods.games.replies import ReplyEngine

GAMES, MOVES, VALUES = (TicTacToe(view=view) for view in ("game", "move", "value"))
WIN = "XX.OO...."
"""X wins at square 2."""


class Writer(LanguageJudge):
    """A judge whose replies are those of a function of the question."""

    def __init__(self, write):
        super().__init__()
        self.write = write

    def reply(self, questions):
        return [Reply(self.write(question.text)) for question in questions]


def context(reply, task=GAMES, group_size=1):
    def answer(view, views):
        return reply(view, sum(view == other for other, _ in views[:-1]), views[-1][1])

    return Context(task, ReplyEngine(answer), None, Sampling(), 0, 0, group_size=group_size)


def first_square(view, count, model):
    return str(view.index("."))


def test_games_are_played_by_the_rules():
    """The first empty square each time: whoever the opponent is, X has 0 and ends within five of its moves."""
    prompts = [(slot, GAMES[slot]) for slot in range(20)]
    ctx = context(first_square)
    episodes = BoardGames().collect(prompts, ctx)
    assert {episode.info["outcome"] for episode in episodes} <= {1, 0, -1}
    assert all(3 <= len(episode.turns) <= 5 for episode in episodes)
    views = [view for view, _ in ctx.engine.views]
    assert views[:20] == ["." * 9] * 20
    assert all(view.count("X") == view.count("O") for view in views)
    assert len({tuple(turn.completion.output for turn in episode.turns) for episode in episodes}) > 3
    scores = [GAMES.score(episode) for episode in episodes]
    assert [score["won"] for score in scores] == [(episode.info["outcome"] + 1) / 2 for episode in episodes]


def test_a_text_that_is_no_legal_move_loses():
    (episode,) = BoardGames().collect([(0, GAMES[0])], context(lambda view, count, model: "9"))
    assert episode.info == {"outcome": -1, "counts": {"game/illegal": 1}} and len(episode.turns) == 1
    texts = {"4": 4, "not 1 but 4": 4, "0": None, "9": None, "none": None}
    assert {text: read_action(text, [1, 4]) for text in texts} == texts


def test_evaluations_count_wins_draws_and_losses():
    games = [PlayedGame(("...",), outcome) for outcome in (1, 1, 0, -1, 1)]
    even = [PlayedGame((), outcome) for outcome in (1, -1)]
    written = MoveAggregator().write([(WIN, 2, games), (WIN, 5, even), (WIN, 6, [])])
    assert written == ["wins 3, draws 1, losses 1: good", "wins 1, draws 0, losses 1: even", None]
    pattern = compile_counts("wins {wins}, draws {draws}, losses {losses}: {verdict}")
    assert read_value(written[0], pattern) == pytest.approx(0.4)  # (3 - 1) / 5
    assert read_value("wins 3", pattern) is None and read_value("wins 0, draws 0, losses 0: even", pattern) is None
    with pytest.raises(ValueError, match="losses"):
        MoveAggregator("{wins} {draws}")


def test_a_language_model_can_aggregate():
    questions = []

    def write(question):
        questions.append(question)
        return "Two games of two were won, so the move is\ngood"

    games = [PlayedGame(("XX.OO....", "XXXOO...."), 1), PlayedGame(("XX.OO....",), -1)]
    assert MoveAggregator(judge=Writer(write)).write([(WIN, 2, games)]) == [
        "Two games of two were won, so the move is good"
    ]
    assert "square 2 (" in questions[0] and f"{WIN}\n" in questions[0]
    assert "XX.OO.... XXXOO.... won\nXX.OO.... lost" in questions[0]


class WonRules(TicTacToeRules):
    def start(self):
        return WIN


class FromWin(TicTacToe):
    """Games begin where X wins at once with 2."""

    rules = WonRules()


def test_language_monte_carlo_writes_what_happens():
    """X plays 2 and wins: all five continuations are over at once."""
    task = FromWin(view="value")
    (episode,) = LanguageMonteCarlo().collect([(0, task[7])], context(lambda view, count, model: "2", task))
    assert episode.info["answer"] == "wins 5, draws 0, losses 0: good"
    assert episode.prompt.info == {"position": WIN, "action": 2} and episode.prompt == task.find(WIN, 2)


def test_one_iteration_of_language_monte_carlo_finds_the_win():
    """Each legal move is played first, and then the last empty square; the improver picks the win, 5 of 5."""
    evaluations = {}
    task = FromWin(view="value")
    for action in task.rules.actions(WIN):

        def reply(view, count, model, action=action):
            return str(action) if view == WIN else str(view.rindex("."))

        rows = LanguageMonteCarlo().collect([(slot, task[slot]) for slot in range(12)], context(reply, task))
        for row in rows:  # of games that go on a later move may be drawn
            if row.prompt.info["position"] == WIN:
                evaluations[row.prompt.info["action"]] = row.info["answer"]
    assert set(evaluations) == {2, 5, 6, 7, 8} and evaluations[2] == "wins 5, draws 0, losses 0: good"
    values = {a: read_value(text, MoveImprover().pattern) for a, text in evaluations.items()}
    assert all(value < 1 for action, value in values.items() if action != 2)
    assert MoveImprover().pick([(WIN, evaluations)]) == [2]


def test_candidates_are_the_most_frequent_moves():
    assert count_actions([5, 2, 5, None, 2, 5, 8], 2) == [5, 2] and count_actions([None], 3) == []


def test_one_candidate_is_the_pick_and_what_cannot_be_read_is_below_all_others():
    improver = MoveImprover()
    assert improver.pick([(WIN, {7: "?"})]) == [7]
    assert improver.pick([(WIN, {7: "?", 2: "wins 0, draws 0, losses 5: bad"})]) == [2]
    assert improver.pick([(WIN, {7: "?", 2: "?"})]) == [None]


def test_a_move_outside_of_the_samples_is_left_out():
    """The selection mask: square 6 is legal, but was not sampled."""
    evaluations = {2: "good", 5: "bad"}
    replies = iter(["6", "so 2", "I cannot say"])
    improver = MoveImprover(judge=Writer(lambda question: next(replies)))
    assert improver.pick([(WIN, evaluations)] * 3) == [None, 2, None]


def play_and_value(view, count, model):
    """The policy writes 5, 2, 8 in turn in the position of the win; the value model counts as it should."""
    if model == "value":
        return "wins 5, draws 0, losses 0: good" if view == f"{WIN}2" else "wins 1, draws 0, losses 4: bad"
    return ("5", "2", "8")[count % 3] if view == WIN else str(view.index("."))


def test_the_better_move_is_learned():
    task = FromWin(view="move")
    rollout = MoveImprovement(samples=6)
    assert rollout.sampled_models() == {"value"}
    episodes = rollout.collect([(slot, task[slot]) for slot in range(8)], context(play_and_value, task))
    at_win = [episode for episode in episodes if episode.prompt.info["position"] == WIN]
    assert at_win and {e.info["answer"] for e in at_win} == {"wins 5, draws 0, losses 0: good so 2"}
    (short, *_) = MoveImprovement(samples=3, answer="{action}").collect([(0, task[0])], context(play_and_value, task))
    assert short.info["answer"] in "012345678"


def test_moves_of_won_games_are_learned_without_values():
    task = FromWin(view="move")
    rollout = MoveImprovement(pick="won", answer="{action}")
    assert rollout.sampled_models() == frozenset()
    (won,) = rollout.collect([(0, task[0])], context(lambda view, count, model: "2", task))
    assert won.info["answer"] == "2" and won.prompt == task.find(WIN)
    (lost,) = rollout.collect([(0, task[0])], context(lambda view, count, model: "?", task))
    assert lost.ended == "error" and "no legal move" in lost.info["error"]


def test_tasks_without_rules_and_wrong_options_are_refused():
    with pytest.raises(ValueError, match="TicTacToe"):
        BoardGames().check_task(Cyclic())
    for options, message in (({"view": "x"}, "board"), ({"pick": "best"}, "pick must be"), ({"answer": "x"}, "action")):
        with pytest.raises(ValueError, match=message):
            MoveImprovement(**options)


def test_a_value_model_learns_the_buffers_of_three_rounds():
    steps = {step.name: step for step in list_steps(read_rounds(["nlrl", "rounds=3"]))}
    reads = [steps[f"{number}/buffer"].reads for number in (1, 3)]
    assert reads == [("1/older", "1/recent", "1/mc"), ("3/older", "3/recent", "3/mc")]
    assert steps["3/recent"].reads == ("2/mc",) and steps["3/older"].reads == ("2/recent",)
    assert steps["2/recent"].reads == ("1/mc",)  # so the third round has the evaluations of 1, 2 and 3
    assert steps["3/values"].weights == "2/values" and steps["3/policy"].weights == "2/policy"
    assert steps["2/picks-1"].folders == ("1/values",)
    window = list_steps(read_rounds(["nlrl", *read_rounds(["nlrl"]).values["baselines"]["one_buffer"]]))
    assert next(step for step in window if step.name == "1/buffer").reads == ("1/mc",)
