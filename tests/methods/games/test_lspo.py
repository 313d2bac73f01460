"""LSPO: regret matching by hand, CFR against known equilibria, speeches in clusters, and the pairs of a game."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.testing import assert_close

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, PolicyOutput, Prompt, Sampling
from mmrl.methods.games.lspo.cfr import (
    FiniteGame,
    RegretMinimiser,
    best_response_value,
    evaluate_strategy,
    match_regrets,
    measure_exploitability,
)
from mmrl.methods.games.lspo.game import HiddenRoleGame, read_vote, win_probability
from mmrl.methods.games.lspo.latent import LatentDeal, LatentGame, SpeechClusters, find_place, name_seat
from mmrl.methods.games.lspo.pairs import LatentPairs, label_proportion, pick_pair
from mmrl.objectives.preference import DPOLoss
from tasks.werewolf.task import Werewolf
from tests.methods.games.replies import ReplyEngine

TASK = Werewolf()
ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


class MatrixGame(FiniteGame):
    """Two players choose a row and a column at once; the second one pays the matrix to the first."""

    players = 2

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=float)

    def deals(self):
        return [(1.0, ())]

    def actor(self, state):
        return None if len(state) == 2 else len(state)

    def information_set(self, state):
        return len(state)

    def count_actions(self, state):
        return self.matrix.shape[len(state)]

    def move(self, state, action):
        return (*state, action)

    def payoffs(self, state):
        return self.matrix[state], -self.matrix[state]


class Kuhn(FiniteGame):
    """Kuhn poker: cards 0 to 2, an ante of 1 and one bet of 1; action 0 passes, 1 bets."""

    players = 2

    def deals(self):
        return [(1 / 6, (cards, "")) for cards in permutations(range(3), 2)]

    def actor(self, state):
        return None if state[1] in ("pp", "pbp", "pbb", "bp", "bb") else len(state[1]) % 2

    def information_set(self, state):
        return state[0][len(state[1]) % 2], state[1]

    def count_actions(self, state):
        return 2

    def move(self, state, action):
        return state[0], state[1] + "pb"[action]

    def payoffs(self, state):
        cards, moves = state
        if moves in ("pbp", "bp"):  # the last player has passed a bet
            first = 1 if moves == "bp" else -1
        else:
            first = (2 if moves.endswith("bb") else 1) * (1 if cards[0] > cards[1] else -1)
        return first, -first


def test_regret_matching_by_hand():
    """R = [2, -1, 1]: 2 / 3, 0, 1 / 3; no positive regret: uniform."""
    assert match_regrets(np.array([2.0, -1, 1])) == pytest.approx([2 / 3, 0, 1 / 3])
    assert match_regrets(np.array([-1.0, -2, 0])) == pytest.approx([1 / 3] * 3)


def test_the_first_step_against_a_biased_player_by_hand():
    """Rock, paper, scissors against (.5, .3, .2): rock 0 - .3 + .2 = -.1, paper .5 - .2 = .3, scissors -.5 + .3 = -.2.

    Uniform play has the value 0, so the regrets are the values, and the next strategy is paper.
    """
    others = np.array([0.5, 0.3, 0.2])
    values = ROCK_PAPER_SCISSORS @ others
    assert values == pytest.approx([-0.1, 0.3, -0.2])
    solver = RegretMinimiser(MatrixGame(ROCK_PAPER_SCISSORS))
    solver.regrets[1], solver.sums[1] = others.tolist(), [0.0] * 3
    solver._walk((), 0, 1.0, 1.0)
    assert solver.regrets[0] == pytest.approx(values)
    assert match_regrets(solver.regrets[0]) == pytest.approx([0, 1, 0])


def solve_exactly(matrix):
    """Value of a matrix game and the first player's equilibrium, by linear programming."""
    rows, columns = matrix.shape
    bounds = [(0, None)] * rows + [(None, None)]
    result = linprog(
        [*[0.0] * rows, -1.0],
        A_ub=np.hstack([-matrix.T, np.ones((columns, 1))]), b_ub=np.zeros(columns),
        A_eq=[[*[1.0] * rows, 0.0]], b_eq=[1.0], bounds=bounds,
    )  # fmt: skip
    return -result.fun, result.x[:rows]


@pytest.mark.parametrize("sampled", [False, True])
def test_a_matrix_game_ends_at_the_equilibrium_of_linear_programming(sampled):
    matrix = np.array([[0.0, -2, 1], [2, 0, -1], [-1, 1, 0]])  # rock against paper counts twice
    value, mix = solve_exactly(matrix)
    assert value == pytest.approx(0, abs=1e-9) and mix == pytest.approx([0.25, 0.25, 0.5])  # by symmetry, by hand
    game = MatrixGame(matrix)
    strategy = RegretMinimiser(game, sampled=sampled, seed=3).run(3000).average()
    assert strategy[0] == pytest.approx(mix, abs=0.05) and strategy[1] == pytest.approx(mix, abs=0.05)
    assert measure_exploitability(game, strategy) < 0.06


def test_kuhn_poker_has_its_known_value_and_its_exploitability_falls():
    """The value of the first player is -1 / 18 (Kuhn, 1950); the bound on regrets falls with 1 / sqrt(T)."""
    game, solver = Kuhn(), RegretMinimiser(Kuhn())
    ends = [measure_exploitability(game, solver.run(count).average()) for count in (1, 9, 90, 400)]
    assert ends[0] > ends[1] > ends[2] > ends[3] and ends[3] < 0.01
    strategy = solver.average()
    assert evaluate_strategy(game, strategy)[0] == pytest.approx(-1 / 18, abs=0.005)
    # dominated moves vanish: the highest card calls a bet, the lowest does not
    assert strategy[2, "b"][1] > 0.99 and strategy[0, "b"][0] > 0.99


def test_a_trembling_player_is_answered_where_it_would_not_go():
    """A row against columns: the second player never takes the last column, which costs it 9 in either row.

    The first player's answer to it is the second row, and it learns it only from trembles.
    """

    class Told(MatrixGame):
        """The column is chosen first, and the row's player sees it."""

        def information_set(self, state):
            return state

        def count_actions(self, state):
            return 2

        def payoffs(self, state):
            column, row = state
            paid = self.matrix[row, column]
            return -paid, paid

    game = Told([[0.0, 8], [-1, 9]])
    steady, trembling = (RegretMinimiser(game, True, 1, share).run(400).average() for share in (0.0, 0.5))
    assert trembling[(1,)][1] > 0.95 and trembling[(0,)][0] > 0.95
    assert (1,) not in steady or steady[(1,)][1] < trembling[(1,)][1]


def test_the_best_response_is_that_of_all_pure_strategies():
    """Against the uniform strategy of Kuhn poker, by trying all 2^6 plans of the first player."""
    game = Kuhn()
    sets = [(card, moves) for card in range(3) for moves in ("", "pb")]
    plans = [dict(zip(sets, np.eye(2)[list(plan)])) for plan in product((0, 1), repeat=6)]
    best = max(evaluate_strategy(game, plan)[0] for plan in plans)
    assert best_response_value(game, {}, 0) == pytest.approx(best)


def test_the_wolf_is_out_with_most_votes():
    """2 of 4 votes against 1 and 1; two against two are drawn; three votes for others save it; nobody votes."""
    assert win_probability([3, 3, 0, 1], 3) == 1.0
    assert win_probability([3, 3, 0, 0], 3) == 0.5
    assert win_probability([2, 2, None, 3], 3) == 0.0
    assert win_probability([None] * 4, 3) == 0.0


def test_votes_are_read():
    texts = {"3": 2, "vote 2 or 4": 3, "1": None, "5": None, "me": None}
    assert {text: read_vote(text, 0, 4) for text in texts} == texts
    assert [find_place(name_seat(place, 1), 1) for place in range(3)] == [0, 1, 2]
    assert [name_seat(place, 1) for place in range(3)] == [0, 2, 3]


def test_speeches_of_one_meaning_fall_into_one_cluster():
    texts = ["pass", *[form.format(seat) for seat in range(1, 5) for form in ("{} bad", "vote {}")]] * 10
    clusters = SpeechClusters(texts, 5, seed=1)
    assert (
        clusters.assign("3 bad") == clusters.assign("vote 3") != clusters.assign("2 bad") == clusters.assign("vote 2")
    )
    assert clusters.assign("so vote 3") == clusters.assign("3 bad") != clusters.assign("pass")  # of a speech not heard
    assert SpeechClusters(["pass", "pass"], 4).count == 1
    with pytest.raises(ValueError, match="no speech"):
        SpeechClusters([], 2)


SMALL = {
    LatentDeal(("wolf", "seer", "villager"), ("1 wolf", "2 seer 1 bad", "3 villager"), 0): 1,
    LatentDeal(("villager", "seer", "wolf"), ("1 villager", "2 seer 3 bad", "3 wolf"), 2): 1,
}


def test_the_game_over_clusters_is_solved():
    """The seer knows the wolf; the villager at the other end hears it. An honest code wins always: 0 for the wolf's
    best response is not to be had, since the wolf votes too, but it loses by 2 votes to 1."""
    game = LatentGame(SMALL, 2)
    solver = RegretMinimiser(game)
    before = measure_exploitability(game, solver.run(1).average())
    strategy = solver.run(60).average()
    assert measure_exploitability(game, strategy) < before / 3
    # a villager knows who the wolf is: seats 1 and 3 differ in these two deals
    assert evaluate_strategy(game, strategy)[1] > 0.95


def test_a_role_speaks_in_the_clusters_that_it_has():
    game = LatentGame(SMALL, 3, {"seer": [2, 0]})
    (_, state), _ = game.deals()
    assert game.count_actions(state) == 3  # of the wolf, who speaks first
    after = game.move(state, 1)
    assert game.count_actions(after) == 2 and game.move(after, 1).moves == (1, 2)
    votes = state._replace(moves=(1, 2, 0, 1))
    assert game.information_set(votes) == ("2 seer 1 bad", True, (1, 2, 0)) and game.count_actions(votes) == 2


def test_pairs_by_rank_and_by_proportion_by_hand():
    assert pick_pair([0.2, 0.5, 0.0, 0.5]) == (1, 2) and pick_pair([0.3, 0.3]) is None
    assert pick_pair([0.2, 0.5, 0.1], 0.3) == (1, 2) and pick_pair([0.2, 0.5, 0.1], 0.4) is None
    # solution 3 to 1, reference 1 to 1: .75; reference 3 to 1 already: no preference
    assert label_proportion(0.75, 0.25, 0.5, 0.5) == pytest.approx(0.75)
    assert label_proportion(0.75, 0.25, 0.75, 0.25) == pytest.approx(0.5)
    assert label_proportion(0.6, 0.0, 0.1, 0.9) == 1.0


def test_dpo_on_proportions_ends_at_the_solution():
    """A policy over three actions that begins at (.6, .3, .1) and is to be (.2, .3, .5): all pairs, beta = 1."""
    start, goal = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    logits = start.log().clone().requires_grad_()
    pairs = [(0, 1), (0, 2), (1, 2)]
    labels = [label_proportion(*(float(x) for x in (goal[a], goal[b], start[a], start[b]))) for a, b in pairs]
    rows = torch.tensor([i for pair in pairs for i in pair])
    batch = Batch(
        action_mask=torch.ones(6, 1, dtype=torch.bool),
        group=torch.tensor([0, 0, 1, 1, 2, 2]),
        preference=torch.tensor([1.0, -1] * 3),
        ref_logprobs=start.log()[rows][:, None],
        preference_probability=torch.tensor([label for label in labels for _ in range(2)]),
    )
    loss = DPOLoss(beta=1.0, soft_labels=True)
    for _ in range(300):
        logprobs = logits.log_softmax(0)[rows][:, None]
        (slope,) = torch.autograd.grad(loss(PolicyOutput(logprobs, torch.zeros(6, 1)), batch).mean(), logits)
        logits = (logits - 5 * slope).detach().requires_grad_()
    assert_close(logits.softmax(0).detach(), goal, atol=1e-3, rtol=0)


class OneDeal(Werewolf):
    """Seat 2 is the seer, who saw that seat 4 is the wolf."""

    def __getitem__(self, index):
        info = {
            "roles": ["villager", "seer", "villager", "wolf"],
            "private": ["1 villager", "2 seer 4 bad", "3 villager", "4 wolf"],
            "wolf": 3,
        }
        return Prompt(f"werewolf/train/{index}", ({"role": "user", "content": "werewolf"},), info=info)


def context(engine, models=None, task=None):
    return Context(task or OneDeal(), engine, None, Sampling(), 0, 0, models=models or {})


def tell_truth(view, views):
    """The seer tells what it saw, all others pass; villagers vote for whom the seer named, the wolf for 1."""
    private, _, ask = view.split("|")
    if ask == "say":
        return "4 bad" if "seer" in private else "pass"
    return "1" if "wolf" in private else "4"


def test_a_game_is_played():
    engine = ReplyEngine(tell_truth)
    (episode,) = HiddenRoleGame().collect([(3, OneDeal()[0])], context(engine))
    views = [view for view, _ in engine.views]
    assert views[:3] == ["1 villager||say", "2 seer 4 bad|pass/|say", "3 villager|pass/4 bad/|say"]
    assert views[7] == "4 wolf|pass/4 bad/pass/pass/|vote"  # votes are not seen
    assert episode.info["won"] == 1.0 and len(episode.turns) == 8
    assert episode.info["moves"] == ["pass", "4 bad", "pass", "pass", "4", "4", "4", "1"]


def test_an_opponent_plays_the_other_side():
    engine = ReplyEngine(tell_truth)
    prompts = [(index, OneDeal()[index]) for index in (0, 1)]  # as the village, and as the wolf
    village, wolf = HiddenRoleGame(opponent="first").collect(prompts, context(engine, {"first": None}))
    assert (village.info["won"], len(village.turns)) == (1.0, 6) and (wolf.info["won"], len(wolf.turns)) == (0.0, 2)
    assert [model for view, model in engine.views[:2]] == [None, "first"]
    with pytest.raises(ConfigError, match=r"rollout\.opponent='first'"):
        HiddenRoleGame(opponent="first").collect(prompts, context(engine))


def test_pairs_of_a_game_follow_the_solution():
    """The village's part of the solution is to name the wolf, so the seer's truth is preferred to its silence."""

    def reply(view, views):
        private, _, ask = view.split("|")
        turn = sum(view == other for other, _ in views)
        if ask == "say":
            return ("4 bad", "pass", "vote 1")[turn % 3]
        others = [str(seat) for seat in range(1, 5) if str(seat) != private[0]]
        return others[turn % 3]

    rollout = LatentPairs(games=9, clusters=(3,), iterations=400, samples=3, tremble=0.5)
    rows = rollout.collect([(0, OneDeal()[0])], context(ReplyEngine(reply)))
    assert rollout.metrics()["latent/clusters"] == 3
    by_group = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    assert all(
        [float(row.turns[0].completion.extra["preference"]) for row in pair] == [1, -1] for pair in by_group.values()
    )
    # votes: groups 4 to 7; the players of the village vote for seat 4, and the seer knows why
    seer = by_group[5][0]
    assert seer.role == "seer" and seer.turns[0].completion.output == "4"
    assert rows[0].info["counts"] == {"latent/pairs": len(by_group), "latent/games": 1}


def test_the_solution_is_that_of_the_checkpoint():
    engine = ReplyEngine(lambda view, views: ("pass", "4 bad")[len(views) % 2] if view.endswith("say") else "1")
    rollout = LatentPairs(games=8, clusters=(2,), iterations=50, samples=2)
    rollout.collect([(0, OneDeal()[0])], context(engine))
    other = LatentPairs(games=8, clusters=(2,), iterations=50, samples=2)
    other.load_state_dict(rollout.state_dict())
    assert {key: value.tolist() for key, value in other.solution.strategy.items()} == {
        key: value.tolist() for key, value in rollout.solution.strategy.items()
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "{private}"}, "speeches"),
        ({"asks": ["say"]}, "asks"),
        ({"clusters": []}, "clusters"),
        ({"samples": 1}, "samples"),
        ({"labels": "best"}, "labels must be rank or proportions"),
        ({"score": "payoff", "labels": "proportions"}, "have no proportions"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LatentPairs(**options)


def test_a_task_without_roles_is_refused():
    class Plain(OneDeal):
        def __getitem__(self, index):
            return replace(super().__getitem__(index), info={})

    with pytest.raises(ValueError, match="Werewolf"):
        HiddenRoleGame().check_task(Plain())
    HiddenRoleGame().check_task(TASK)


def test_clusters_grow_over_the_rounds_and_a_baseline_changes_the_labels_alone():
    steps = {step.name: step for step in list_steps(read_rounds(["lspo"]))}
    fits = [steps[f"{number}/dpo-1"] for number in (1, 2, 3)]
    assert [fit.weights for fit in fits] == ["0/players", "1/dpo-1", "2/dpo-1"]
    assert [fit.folders for fit in fits] == [("0/players",)] * 3  # the opponent of all measurements is the start
    assert all("data.rollout.clusters=[3,4,6]" in fit.stage.overrides for fit in fits)
    assert ["data.rollout.round=2" in fit.stage.overrides for fit in fits] == [False, True, False]
    assert [LatentPairs(clusters=(3, 4, 6), round=number).clusters for number in (1, 2, 3, 4)] == [3, 4, 6, 6]
    arguments = read_rounds(["lspo"]).values["baselines"]["rank"]
    other = {step.name: step for step in list_steps(read_rounds(["lspo", *arguments]))}["1/dpo-1"]
    changed = [b for a, b in zip(fits[0].stage.overrides, other.stage.overrides, strict=True) if a != b]
    assert changed == ["data.rollout.labels=rank"]
