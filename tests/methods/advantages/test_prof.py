"""Which completions the process filter keeps, by hand."""

import pytest

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.advantages.prof import ProcessConsistencyFilter, balance
from mmrl.rewards.steps import StepScorer
from tests.laws.example import NoSteps

LAWS = [lambda: ProcessConsistencyFilter(NoSteps())]

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)


class Written(StepScorer):
    """The score that stands in each step."""

    def __call__(self, episodes, steps):
        return [[float(step) for step in each] for each in steps]


def group(correct, wrong, key=0):
    """Completions of one group: the scores of their steps, first of the correct ones, then of the wrong ones."""
    out = []
    for reward, texts in ((1.0, correct), (0.0, wrong)):
        for text in texts:
            done = Completion({}, None, None, None, text)
            out.append(Episode(Prompt("p"), key, len(out), [Turn(done)], reward=reward))
    return out


def two_steps(values):
    """Texts of two steps of one score each."""
    return [f"{value}\n{value}" for value in values]


def keep(part, episodes, ctx=CTX):
    return [(episode.reward, float(episode.output.split()[0])) for episode in part(episodes, ctx)]


def test_the_balance_by_hand():
    assert balance(6, 2, 4) == (2, 2)  # 2 * 2 is the largest product of two numbers that sum to 4
    assert balance(7, 1, 4) == (3, 1)  # one wrong completion is all there is
    assert balance(1, 7, 4) == (1, 3)
    assert balance(8, 0, 4) == (4, 0) and balance(0, 8, 4) == (0, 4)
    assert balance(4, 4, 5) == (3, 2)  # 3 * 2 either way
    assert balance(1, 1, 4) == (1, 1)  # there are no more
    for correct in range(9):  # against all pairs
        for count in range(2, 9):
            best = max(k * (count - k) for k in range(count + 1) if k <= correct and count - k <= 8 - correct)
            right, wrong = balance(correct, 8 - correct, count)
            assert (right + wrong, right * wrong) == (count, best)


def test_good_correct_and_bad_wrong_completions_stay():
    part = ProcessConsistencyFilter(Written())
    both = [*group(two_steps([0.9, 0.4, 0.7, 0.6, 0.8, 0.3]), two_steps([0.2, 0.7]))]
    assert keep(part, both) == [(1, 0.9), (1, 0.8), (0, 0.2), (0, 0.7)]
    assert keep(part, group(two_steps([0.9] * 8), [])) == [(1, 0.9)] * 4
    many_wrong = group(two_steps([0.1, 0.5]), two_steps([0.6, 0.2, 0.9, 0.1, 0.3, 0.8]))
    assert keep(part, many_wrong) == [(1, 0.1), (1, 0.5), (0, 0.2), (0, 0.1)]


def test_the_value_is_the_mean_of_the_steps_less_a_penalty_of_their_number():
    part = ProcessConsistencyFilter(Written(), count=2, length_penalty=0.5, max_steps=4)
    # one step of .9 counts .4, less than two of .7; four steps of .95 count .45; three of 0, .6, .9 have a mean of .5
    episodes = group(["0.9", "0.7\n0.7", "0.95\n0.95\n0.95\n0.95", "0.0\n0.6\n0.9"], [])
    assert part.rate(episodes, Written()) == pytest.approx([0.4, 0.7, 0.45, 0.5])
    assert [e.sample_index for e in part(episodes, CTX)] == [1, 3]


def test_wrong_completions_may_be_drawn_at_random():
    part = ProcessConsistencyFilter(Written(), sides="correct")
    found = {}
    for key in range(40):
        for reward, value in keep(part, group(two_steps([0.1, 0.9, 0.8]), two_steps([0.2, 0.7, 0.3, 0.6, 0.5]), key)):
            found[reward, value] = found.get((reward, value), 0) + 1
    assert found[1, 0.9] == found[1, 0.8] == 40 and (1, 0.1) not in found
    # each of five is drawn with probability 2/5: 16 of 40, standard deviation 3.1
    assert all(6 <= found[0, value] <= 26 for value in (0.2, 0.7, 0.3, 0.6, 0.5))


def test_the_choice_does_not_depend_on_the_groups_beside_it():
    part = ProcessConsistencyFilter(Written(), sides="correct")
    one, other = (group(two_steps([0.9, 0.1]), two_steps([0.2, 0.3, 0.4, 0.5]), key) for key in (3, 5))
    mixed = [episode for pair in zip(one, other) for episode in pair]
    whole = part(mixed, CTX)
    assert [e for e in whole if e.group == 5] == part(other, CTX) and len(whole) == 8


def test_refusals():
    for wrong in ({"count": 1}, {"sides": "wrong"}, {"separator": ""}, {"max_steps": 1}):
        with pytest.raises(ValueError, match=f"process_filter.{next(iter(wrong))}"):
            ProcessConsistencyFilter(Written(), **wrong)
