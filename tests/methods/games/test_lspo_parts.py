"""LSPO: draws and reaches of regret minimisation, games that fail, and the choice of each pair, by hand."""

import warnings
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from mmrl.methods.games.lspo.cfr import RegretMinimiser, best_response_value, evaluate_strategy
from mmrl.methods.games.lspo.game import GameMove, HiddenRoleGame, Table
from mmrl.methods.games.lspo.latent import LatentGame, LatentState, SpeechClusters
from mmrl.methods.games.lspo.pairs import LatentPairs, Solution
from tests.methods.games.replies import ReplyEngine, complete
from tests.methods.games.test_lspo import SMALL, Kuhn, MatrixGame, OneDeal, context, tell_truth


def test_deals_are_drawn_by_their_probabilities():
    """Of six deals of cards every one is drawn in 200 iterations, so all three cards have a strategy."""
    solver = RegretMinimiser(Kuhn(), sampled=True).run(200)
    assert {key for key in solver.average() if key[1] == ""} == {(card, "") for card in range(3)}


def test_what_the_others_never_reach_is_not_walked():
    class Told(MatrixGame):
        def information_set(self, state):
            return state

    solver = RegretMinimiser(Told([[1.0, 2], [3, 4]]))
    solver.regrets[()], solver.sums[()] = [1.0, 0.0], [0.0, 0.0]  # the first player takes row 0
    assert solver._walk((), 1, 1.0, 1.0) == pytest.approx(-1.5) and (0,) in solver.sums and (1,) not in solver.sums


def test_a_tremble_takes_every_move_alike():
    """Of 4000 draws of (1, 0) with trembles in a fifth: a tenth, .0047 of standard deviation; without any, none."""
    steady, trembling = (RegretMinimiser(Kuhn(), True, 0, share) for share in (0.0, 0.2))
    assert sum(steady._draw([1.0, 0.0]) for _ in range(100)) == 0
    assert sum(trembling._draw([1.0, 0.0]) for _ in range(4000)) / 4000 == pytest.approx(0.1, abs=0.02)
    steady.random = lambda: 0.95
    assert steady._draw([0.5, 0.4]) == 1  # the last move takes what rounding leaves


def test_a_set_without_a_strategy_is_played_uniformly():
    assert evaluate_strategy(MatrixGame([[1.0, 2], [3, 4]]), {}).tolist() == [2.5, -2.5]
    assert best_response_value(MatrixGame([[1.0, 2], [3, 4]]), {}, 0) == 3.5


@pytest.mark.parametrize("seed", range(6))
def test_the_best_response_to_any_strategy_is_that_of_all_pure_ones(seed):
    game, rng = Kuhn(), np.random.default_rng(seed)
    sets = [[(card, moves) for card in range(3) for moves in part] for part in (("", "pb"), ("p", "b"))]
    strategy = {key: rng.dirichlet([0.3, 0.3]) for key in sets[0] + sets[1]}
    for player in (0, 1):
        plans = [dict(zip(sets[player], np.eye(2)[list(plan)])) for plan in product((0, 1), repeat=6)]
        best = max(evaluate_strategy(game, {**strategy, **plan})[player] for plan in plans)
        assert best_response_value(game, strategy, player) == pytest.approx(best)


def build_table(*votes, prompt=None):
    """A game of seats 1 to 4 in which everybody has named seat 1 in a speech, and then votes."""
    table = Table(0, prompt or OneDeal()[0], 0)
    for player in range(4):
        table.decisions.append(GameMove(player, False, [complete("1 bad")]))
    table.decisions += [GameMove(player, True, [complete(vote)]) for player, vote in enumerate(votes)]
    return table


def test_votes_alone_decide_and_the_wolf_wins_where_the_village_does_not():
    """Seat 4 is the wolf: three votes of four are for it; then two of four against two for seat 2."""
    table = build_table("4", "4", "4", "1")
    assert [table.payoff(player) for player in range(4)] == [1, 1, 1, 0]
    assert [build_table("4", "4", "2", "2").payoff(player) for player in (0, 3)] == [0.5, 0.5]
    assert [build_table("2", "1", "2", "2").payoff(player) for player in (0, 3)] == [0, 1]


class Fails(ReplyEngine):
    """An engine that fails where the view has a mark."""

    mark = "9 villager"

    def sample(self, requests, sampling):
        done = super().sample(requests, sampling)
        views = [view for view, _ in self.views[-len(done) :]]
        return [replace(each, ended="error") if self.mark in view else each for each, view in zip(done, views)]


class Marked(OneDeal):
    """Of the odd prompts the second player cannot move."""

    def __getitem__(self, index):
        prompt = super().__getitem__(index)
        private = ["1 villager", "9 villager", "3 villager", "4 wolf"] if index % 2 else prompt.info["private"]
        return replace(prompt, info={**prompt.info, "private": private})


def test_a_game_that_failed_is_not_played_on():
    engine, notes = Fails(tell_truth), []
    ctx = replace(context(engine), progress=lambda *note: notes.append(note))
    good, failed = HiddenRoleGame().collect([(0, Marked()[0]), (1, Marked()[1])], ctx)
    assert failed.ended == "error" and failed.info["counts"] == {"game/failed": 1} and good.info["won"] == 1.0
    assert len(engine.views) == 8 + 2  # two of the failed game
    assert notes == [("game", step, 8) for step in range(1, 9)]


def test_without_an_opponent_every_game_counts_as_the_villages():
    (episode,) = HiddenRoleGame().collect([(0, OneDeal()[1])], context(ReplyEngine(tell_truth)))
    assert episode.info["won"] == 1.0


def test_silence_is_a_speech():
    assert SpeechClusters(["", ""], 2).count == 1
    for seed in range(6):
        clusters = SpeechClusters(["_", "a"], 2, seed)
        assert clusters.assign("") == clusters.assign("_") != clusters.assign("a")


def test_the_game_over_clusters_by_hand():
    """Two deals of counts 1 and 3. Seats 2 and 3 vote for seat 1, its wolf, which votes for seat 2."""
    first, second = SMALL
    game = LatentGame({first: 1, second: 3}, 3, {"seer": []})
    assert [share for share, _ in game.deals()] == [0.25, 0.75]
    assert game.list_clusters("seer") == (0, 1, 2)
    assert game.information_set(LatentState(first, (1, 2, 0))) == ("1 wolf", True, (1, 2, 0))
    assert game.payoffs(LatentState(first, (1, 2, 0, 0, 0, 0))) == [0, 1, 1]
    assert game.payoffs(LatentState(first, (1, 2, 0, 1, 1, 1))) == [1, 0, 0]  # seats 3, 3 and 2


def record(deal, *speeches):
    return {"roles": list(deal.roles), "private": list(deal.private), "wolf": deal.wolf, "speeches": list(speeches)}


def test_deals_are_counted_as_they_were_played():
    first, second = SMALL
    records = [record(first, "a", "b", "a"), record(second, "a", "b", "a"), record(first, "a", "b", "a")]
    assert Solution(records, 2, 1, 0).game.counts == {first: 2, second: 1}


def test_failed_games_are_in_no_solution_and_pairs_are_numbered_from_their_slot():
    """Of four games two fail. In slot 3 the groups are those from 3 * 2 * 4 = 24 on."""

    def reply(view, views):
        turn = sum(view == other for other, _ in views)
        return ("4 bad", "pass")[turn % 2] if view.endswith("say") else "1" if view[0] != "1" else "2"

    task = Marked()
    rollout = LatentPairs(games=4, clusters=(2,), iterations=30, samples=2, tremble=0.5)
    rows = rollout.collect([(3, task[0]), (4, task[1])], context(Fails(reply), task=task))
    assert len(rollout.solution.records) == 2
    assert rows[0].group in range(24, 32) and rows[-1].ended == "error" and rows[-1].group == 32
    assert isinstance(rows[0].group, int) and isinstance(rows[-1].group, int)
    # the first player's speeches: of two games, and of the one that was played for pairs
    key = rollout.solution.game.information_set(rollout.solution.game.deals()[0][1])
    assert sum(len(values) for values in rollout.solution.play[key]) == 3


def choose(texts, *, strategy=None, play=None, **options):
    """Texts (preferred, other) and the label of the samples of a decision; a, b and c are the actions 0, 1 and 2."""
    solution = SimpleNamespace(
        locate=lambda table, decision: None,
        read_action=lambda state, decision, text: {"a": 0, "b": 1, "c": 2}.get(text),
        game=SimpleNamespace(information_set=lambda state: "key"),
        play={"key": play or []},
        strategy={} if strategy is None else {"key": np.array(strategy)},
    )
    rollout = LatentPairs(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pair = rollout._choose(None, GameMove(0, False, [complete(text) for text in texts]), solution, None)
    return None if pair is None else (pair[0].output, pair[1].output, pytest.approx(pair[2]))


def test_pairs_by_payoff_compare_means():
    """a has the mean 2/3 of three games and b 1 of one."""
    options = {"score": "payoff", "play": [[0.0, 1.0, 1.0], [1.0], []]}
    assert choose("ab", **options) == ("b", "a", 1.0)
    assert choose("ab?", **options) is None and choose("abc", **options) is None


def test_pairs_by_rank_take_the_extremes_of_the_solution():
    assert choose("abc?", strategy=[0.3, 0.2, 0.5]) == ("c", "?", 1.0)
    assert choose("aa", strategy=[0.3, 0.2, 0.5]) is None and choose("ab") is None


def test_pairs_by_proportion_have_the_label_of_shares_by_hand():
    """.75 * 1/4 / (.75 * 1/4 + .25 * 1/2) = .6; from b, .25 * 2/3 / (.25 * 2/3 + .75 * 1/3) = .4, so a with .6."""
    options = {"labels": "proportions", "strategy": [0.75, 0.25]}
    assert choose("aab?", **options) == ("a", "b", 0.6) and choose("baa", **options) == ("a", "b", 0.6)
    assert choose("aa", **options) is None
    equal = {"labels": "proportions", "strategy": [0.5, 0.5, 0.0]}
    assert choose("ba", **equal) == ("b", "a", 0.5) and choose("c?", **equal) is None


def test_every_number_of_clusters_is_at_least_1():
    with pytest.raises(ValueError, match="clusters"):
        LatentPairs(clusters=(0, 3))
