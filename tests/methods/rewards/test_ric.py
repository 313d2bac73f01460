"""RiC: numbers by hand, prompts with rewards, both stages, and that conditioning on rewards is learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mmrl.core.rng import derive_rng
from mmrl.core.types import Collector, Context, Episode, Sampling, Turn
from mmrl.methods.rewards.ric import (
    AnnotateScores,
    PreferencePrompts,
    PreferenceSum,
    RewardGoals,
    ScoreScale,
    annotate,
    draw_goals,
    map_preference,
)
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.base import Rollout
from tasks.grammar import Grammar
from tests.policies.text.oracle import TINY, completions

NAMES = ("count_b", "count_d")
LAWS = [lambda: AnnotateScores(["reward", "exact"], quantile=0.0)]
TASK = Grammar(levels=[0], refusals=0.0, objectives="bd")


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return TextPolicy(config=TINY).eval()


class Recorded(Rollout):
    """Gives one episode without turns to each prompt, and remembers what the policy would read."""

    def collect(self, prompts, ctx):
        self.texts = {slot: prompt.messages[-1]["content"] for slot, prompt in prompts}
        return [Episode(prompt, slot, 0) for slot, prompt in prompts]


def context(policy=None, iteration=0, collector=None):
    services = {} if collector is None else {"collector": collector}
    return Context(TASK, None, policy, Sampling(), seed=0, iteration=iteration, **services)


def episodes_of(policy, rows):
    """Episodes of two groups with these scores."""
    prompts = [TASK[i // 2] for i in range(len(rows))]
    done = completions(policy, prompts, Sampling(max_tokens=4))
    return [
        Episode(p, i // 2, i % 2, [Turn(c)], scores=dict(zip(NAMES, row)))
        for i, (p, c, row) in enumerate(zip(prompts, done, rows))
    ]


MAPPED = [
    # with low -2 and high 2; (.7, .3) has the norm .761577: 4 * .919145 - 2 and 4 * .393919 - 2
    ((1, 0), "l2", (2, -2)),
    ((1, 0), "linf", (2, -2)),
    ((0.7, 0.3), "l2", (1.676580, -0.424323)),
    ((0.7, 0.3), "linf", (2, 0.4)),
    ((0.7, 0.3), "linear", (0.8, -0.8)),
    ((0.5, 0.5), "l2", (0.828427, 0.828427)),
    ((0.5, 0.5), "linf", (2, 2)),
    ((0.7, 0.3), "weights", (0.7, 0.3)),
]


@pytest.mark.parametrize(("preference", "kind", "expected"), MAPPED)
def test_a_preference_maps_to_rewards_by_hand(preference, kind, expected):
    assert map_preference(preference, kind, -2, 2) == pytest.approx(expected, abs=1e-6)


def test_goals_are_the_most_of_all_rewards_but_the_smallest():
    goals = np.array([draw_goals(derive_rng("test", n), 3) for n in range(400)])
    assert ((goals == 4).sum(axis=1) == 2).all() and (goals >= -4).all()
    free = goals[goals < 4]
    # the smallest of three uniform numbers in [-4, 4] has the mean -4 + 8 / 4
    assert free.mean() == pytest.approx(-2, abs=0.3)
    assert np.bincount(goals.argmin(axis=1)).min() > 90


def test_a_scale_divides_both_sides_by_their_quantiles():
    scale = ScoreScale.measure([0.0, 0.0, 0.0, 4.0])  # mean 1, std sqrt(3): z is -.577 and 1.732
    assert scale(4.0) == pytest.approx(4, abs=1e-2) and scale(0.0) == pytest.approx(-4, abs=1e-3)
    assert scale(1.0) == 0 and scale(2.5) == pytest.approx(2, abs=1e-2) and scale(100.0) == 4 and scale(-9.0) == -4


def test_the_mean_is_0_and_only_the_sides_have_scales():
    """At z = 0 the quantile above is read, so that a scale without a lower side has no division by 0."""
    assert ScoreScale(mean=1.0, std=2.0, lower=0.0, upper=1.0)(1.0) == 0.0


def test_an_answer_at_the_quantile_stays(policy):
    # the .5 quantile of (0, 1, 0, .5) is .25, that of (0, 0, 1, .5) is .25; that of all equal rows is their value
    transform = AnnotateScores(NAMES, quantile=0.5)
    assert len(transform(episodes_of(policy, [(0.5, 0.5)] * 2), context(policy))) == 2
    assert transform([], context(policy)) == []


def test_rewards_stand_after_the_prompt_with_one_decimal():
    text = annotate(TASK[0], NAMES, [1.34, -0.04]).messages[-1]["content"]
    assert text == TASK[0].messages[0]["content"] + " <count_b> 1.3 <count_d> 0.0"
    with pytest.raises(ValueError, match="does not end with a text"):
        annotate(replace(TASK[0], messages=()), NAMES, [0, 0])


def test_the_second_stage_asks_for_goals_and_mixes_logged_answers():
    offline, play = Recorded(), Recorded()
    rollout = RewardGoals(NAMES, offline, play, offline_iterations=2, offline_fraction=0.25)
    prompts = [(slot, TASK[slot]) for slot in range(200)]
    rollout.collect(prompts, context(iteration=1))
    assert len(offline.texts) == 200
    episodes = rollout.collect(prompts, context(iteration=2))
    assert [episode.group for episode in episodes] == list(range(200))
    assert len(offline.texts) == pytest.approx(50, abs=18) and len(play.texts) == 200 - len(offline.texts)
    for episode in episodes:
        assert episode.prompt is prompts[episode.group][1]  # what was asked for is not what is learned
        if episode.group in play.texts:
            values = [f"{value:.1f}" for value in episode.info["goals"]]
            assert "4.0" in values
            words = play.texts[episode.group].split()[1:]
            assert words[::2] == ["<count_b>", "<count_d>"] and [float(w) for w in words[1::2]] == pytest.approx(
                list(map(float, values)), abs=0.11
            )
    again = rollout.collect(prompts, context(iteration=2))
    assert [e.info for e in again] == [e.info for e in episodes]


def test_answers_are_labelled_with_their_own_rewards_and_only_good_ones_stay(policy):
    rows = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
    transform = AnnotateScores(NAMES, quantile=0.7, after=1)
    everything = transform(episodes_of(policy, rows), context(policy))
    assert len(everything) == 4
    mean, std = np.mean([0, 1, 0, 0.5]), np.std([0, 1, 0, 0.5])
    assert transform.scales["count_b"].mean == mean and transform.scales["count_b"].std == std
    first = everything[1]
    assert first.prompt.messages[-1]["content"].endswith(" <count_b> 4.0 <count_d> -4.0")
    done = first.turns[0].completion
    expected = policy.encode(first.prompt.observation)["input_ids"]
    assert torch.equal(done.observation["input_ids"], expected) and done.policy_version == -1
    # the 0.7 quantile of (0, 1, 0, .5) is .55: one answer is good at b, another one at d
    episodes = transform(episodes_of(policy, rows), context(policy, iteration=1))
    assert [e.scores for e in episodes] == [dict(zip(NAMES, row)) for row in rows[1:3]]


def test_a_score_that_is_the_same_for_all_answers_is_measured_when_they_differ(policy):
    transform = AnnotateScores(NAMES, after=9)
    (first, _) = transform(episodes_of(policy, [(0.5, 0.0), (0.5, 1.0)]), context(policy))
    assert first.prompt.messages[-1]["content"].endswith(" <count_b> 0.0 <count_d> -4.0")
    before = transform.scales["count_d"]
    (first, _) = transform(episodes_of(policy, [(0.5, 0.2), (1.0, 0.3)]), context(policy, iteration=1))
    assert transform.scales["count_b"].mean == 0.75 and transform.scales["count_d"] is before
    assert first.prompt.messages[-1]["content"].endswith(" <count_b> -4.0 <count_d> -2.4")


def test_scales_are_those_of_all_processes_and_are_saved(policy):
    class Gathered(Collector):
        def gather(self, items):
            return [*items, [3.0, 3.0]]

    transform = AnnotateScores(NAMES, after=9)
    episodes = episodes_of(policy, [(0.0, 1.0), (1.0, 0.0)])
    transform(episodes, context(policy, collector=Gathered()))
    assert transform.scales["count_b"].mean == pytest.approx(4 / 3)
    other = AnnotateScores(NAMES, after=9)
    other.load_state_dict(transform.state_dict())
    assert other.scales == transform.scales
    labels = [[e.prompt.messages for e in each(episodes, context(policy))] for each in (transform, other)]
    assert labels[0] == labels[1]


def test_preferences_go_round_the_slots_or_are_drawn():
    play = Recorded()
    sweep = PreferencePrompts(NAMES, play, [[1, 0], [0.7, 0.3]])
    episodes = sweep.collect([(slot, TASK[slot]) for slot in range(3)], context())
    assert [e.prompt.info["preference"] for e in episodes] == ["1 0", "0.7 0.3", "1 0"]
    assert play.texts[0].endswith(" <count_b> 4.0 <count_d> -4.0")
    rollout = PreferencePrompts(NAMES, play, mapping="weights")
    episodes = rollout.collect([(slot, TASK[slot]) for slot in range(300)], context())
    firsts = [float(e.prompt.info["preference"].split()[0]) for e in episodes]
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.06) and np.std(firsts) == pytest.approx(12**-0.5, abs=0.03)


def test_linear_scalarisation_weighs_scores_by_the_stated_preference():
    play = Recorded()
    (episode,) = PreferencePrompts(NAMES, play, [[0.75, 0.25]]).collect([(0, TASK[0])], context())
    episode.scores = {"count_b": 0.8, "count_d": 0.4}
    weights = {"count_b": 1.0, "count_d": 2.0}
    assert PreferenceSum(weights)([episode]) == pytest.approx([0.8])  # .75 * .8 + .25 * 2 * .4
    with pytest.raises(ValueError, match=r"states no preference of 2 rewards; .*PreferencePrompts"):
        PreferenceSum(weights)([replace(episode, prompt=TASK[0])])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RewardGoals("count_b", Recorded(), Recorded(), 1), "rollout.scores must name at least two"),
        (lambda: RewardGoals(NAMES, Recorded(), Recorded(), 0), "offline_iterations"),
        (lambda: AnnotateScores(["count_b", "count_b"]), "annotate_scores.scores must name at least two"),
        (lambda: AnnotateScores(NAMES, quantile=1.5), "quantile"),
        (lambda: PreferencePrompts(NAMES, Recorded(), [[0.5, 0.6]]), "2 weights of at least 0 that sum to 1"),
    ],
)
def test_wrong_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
