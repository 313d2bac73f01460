"""COS(M+O)S: each step of the story search by hand: which child, what is backed up, measured and trained on."""

import math
from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Completion
from mmrl.methods.search.cosmos.search import StorySearch, select_siblings, write_step
from mmrl.methods.search.cosmos.value import StoryValue
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepTree
from tests.methods.search.test_cosmos import TASK, Writer, context, search
from tests.rollouts.text.test_tools import POLICY


def write(script, text, mask=None):
    ids = POLICY.tokenize(text)
    mask = torch.ones(len(ids)).bool() if mask is None else torch.tensor(mask)
    script.write(Completion({}, ids, torch.zeros(len(ids)), mask, text))
    return script


def below(parent, **state):
    child = StepNode(parent.script.fork(), parent, **state)
    parent.children.append(child)
    return child


def test_siblings_whose_gap_is_not_larger_are_no_pair():
    """.75 - .5 is .25 exactly."""
    root = StepNode(Transcript({}, 0))
    better, worse = below(root, value=0.75), below(root, value=0.5)
    assert select_siblings(root, gap=0.25) == [] and select_siblings(root, gap=0.2499) == [(better, worse)]


def test_the_child_of_the_largest_bound_is_chosen():
    """ln 8 = 2.079: .9 + 1.4 sqrt(2.079 / 6) = 1.724 and .3 + 1.4 sqrt(2.079 / 1) = 2.319; without exploration .9."""
    root = StepNode(Transcript({}, 0), visits=8)
    known, rare = below(root, value=0.9, visits=6), below(root, value=0.3, visits=1)
    assert search().choose_child(None, root) is rare and search(exploration=0.0).choose_child(None, root) is known


def test_values_are_running_means_by_hand():
    """(.4 * 3 + .8) / 4 = .5 above, and (.2 * 1 + .8) / 2 = .5 at the leaf itself."""
    root = StepNode(Transcript({}, 0), value=0.4, visits=3)
    leaf = below(root, value=0.2, visits=1, estimate=0.8)
    search().back_up(None, leaf)
    assert (root.value, root.visits, leaf.value, leaf.visits) == (pytest.approx(0.5), 4, pytest.approx(0.5), 2)


class Measured(StorySearch):
    """A search whose texts have a surprisal of 0, and that notes them."""

    def measure(self, texts, ctx):
        self.texts = [*getattr(self, "texts", []), *(text for _, text in texts)]
        return [(0.0, 0.5)] * len(texts)


def measured(**options):
    rollout = Measured(**{"iterations": 8, "width": 3, "depth": 4, "split": " ", **options})
    rollout.value = StoryValue(1.0, 1.0, (0.0, 0.0, 1.0))
    return rollout


def test_the_prompt_itself_is_not_measured_and_every_story_is_measured_once():
    rollout, root = measured(depth=1), StepNode(Transcript({}, 0))
    rollout._estimate([(StepTree(0, TASK[0], root), root)], "root", context())
    assert root.estimate == 0.0 and not hasattr(rollout, "texts")
    rollout.collect([(0, TASK[0])], context())
    assert len(rollout.texts) == len(set(rollout.texts)) == 3  # three stories of one step are finished


def test_steps_in_the_middle_are_measured_once():
    rollout = measured(iterations=1)
    rollout.collect([(0, TASK[0])], context())
    assert sorted(rollout.texts) == ["baba", "bede", "biki"]


def test_a_story_that_failed_is_not_rated():
    class Fails(Writer):
        def sample(self, requests, sampling):
            first, *rest = super().sample(requests, sampling)
            return [replace(first, ended="error"), *rest]

    rollout = measured(rated=6, rating="linked")
    rollout.fit_value(context(Fails()))
    assert len(rollout.texts) == 5


def test_a_story_is_written_to_its_end_with_draws_of_their_own():
    class Notes(Writer):
        seeds = ()

        def sample(self, requests, sampling):
            self.seeds = (*self.seeds, *(request.seed for request in requests))
            return super().sample(requests, sampling)

    engine = Notes()
    measured(iterations=3, width=2, returns="story").collect([(0, TASK[0])], context(engine))
    assert len(engine.seeds) == len(set(engine.seeds)) > 6


def test_a_step_is_trained_on_where_the_policy_chose_it():
    """Three tokens of the step before are context; of this step's two the second was forced."""
    root = StepNode(Transcript({}, 0))
    first = StepNode(write(root.script.fork(), "abc"), root)
    second = StepNode(write(first.script.fork(), "de", [True, False]), first)
    assert write_step(second).completion.action_mask.tolist() == [False, False, False, True, False]
    assert write_step(first).completion.action_mask.tolist() == [True] * 3
    assert write_step(StepNode(first.script)).completion.action_mask.tolist() == [True] * 3


@pytest.mark.parametrize("share, weights", [(0.5, (0.1, 0.7, 0)), (2.0, (0.2, 0.6, 0))])
def test_a_value_finds_the_width_of_the_ratings(share, weights):
    """Surprisals -6, -3, 0, 3, 6 have the standard deviation sqrt(90 / 5) = 4.242641, and a median at the peak."""
    spread, places = 4.242641, [-6.0, -3.0, 0.0, 3.0, 6.0]
    ratings = [weights[0] + weights[1] * math.exp(-(place**2) / (2 * (share * spread) ** 2)) for place in places]
    value = StoryValue.fit(places, [0.0, 1.0, 1.0, 0.0, 1.0], ratings)
    assert (value.best, value.width) == (pytest.approx(0.0, abs=1e-6), pytest.approx(share * spread, rel=1e-6))
    assert value.weights == pytest.approx(weights, abs=1e-5)
