"""Which problems get hints in the second stage, and how much of the solution."""

import pytest
from hydra.utils import instantiate

from mmrl.core.types import Context, Episode, Sampling
from mmrl.methods.problems.sparkle import HintedUnsolved
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.composed_words import compose_words

TASK = Arithmetic(digits=(1, 1, 1, 1), steps=True)


class Played(SingleTurn):
    """Two completions of every prompt, without an engine."""

    def collect(self, prompts, ctx):
        return [Episode(prompt, slot, k) for slot, prompt in prompts for k in (0, 1)]


def play(rollout, iteration, problems):
    ctx = Context(TASK, None, None, Sampling(), seed=0, iteration=iteration)
    episodes = rollout.collect([(slot, TASK[index]) for slot, index in enumerate(problems)], ctx)
    return [episodes[i : i + 2] for i in range(0, len(episodes), 2)]


def observe(rollout, groups, scores):
    for group, pair in zip(groups, scores):
        for episode, score in zip(group, pair):
            episode.scores = {"exact": score}
    rollout.observe([[episode.light() for episode in group] for group in groups])


def after_first_stage():
    """Problem 0 is never solved, 1 once, 2 at its second visit; 3 is not visited."""
    rollout = HintedUnsolved(Played(), start_iteration=2)
    observe(rollout, play(rollout, 0, [0, 1, 2]), [(0, 0), (0, 1), (0, 0)])
    observe(rollout, play(rollout, 1, [0, 1, 2]), [(0, 0), (0, 0), (1, 1)])
    return rollout


def test_problems_that_were_never_solved_get_hints():
    rollout = after_first_stage()
    assert rollout.solved == {0: False, 1: True, 2: True}
    seen = set()
    for iteration in range(2, 40):
        never, once, later, new = (group[0].prompt for group in play(rollout, iteration, [0, 1, 2, 3]))
        assert (once, later, new) == (TASK[1], TASK[2], TASK[3])
        seen.add(never.info.get("hint", 0.0))
    assert seen == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_the_second_stage_begins_with_its_first_iteration():
    rollout = HintedUnsolved(Played(), start_iteration=2, fractions=(0.5,))
    observe(rollout, play(rollout, 1, [0]), [(0, 0)])
    hints = [play(rollout, iteration, [0])[0][0].prompt.info.get("hint") for iteration in (1, 2)]
    assert hints == [None, 0.5]


def test_the_first_stage_has_no_hints_and_the_second_changes_nothing():
    rollout = after_first_stage()
    assert play(rollout, 1, [0])[0][0].prompt == TASK[0]
    observe(rollout, play(rollout, 2, [0]), [(1, 1)])  # solved with a hint
    assert rollout.solved[0] is False
    again = HintedUnsolved(Played(), start_iteration=2)
    again.load_state_dict(rollout.state_dict())
    assert again.solved == rollout.solved


def test_a_process_without_prompts_knows_the_same():
    rollout = HintedUnsolved(Played(), start_iteration=2)
    groups = play(rollout, 1, [0])
    idle = HintedUnsolved(Played(), start_iteration=2)
    idle.collect([], Context(TASK, None, None, Sampling(), seed=0, iteration=7))
    observe(idle, groups, [(0, 0)])
    assert idle.solved == {0: False}


def test_the_recipe_gives_hints_to_problems_that_its_first_stage_visited_and_did_not_solve():
    """Both stages at the recipe's own size; every third problem is solved by nobody."""
    plain = compose_words(("recipe=sparkle",))
    data = plain.data
    task, curriculum = instantiate(data.task, _convert_="all"), instantiate(data.curriculum)
    rollout = HintedUnsolved(Played(), data.rollout.start_iteration, instruction=data.rollout.instruction)
    hinted = []  # share of the prompts, by iteration
    for iteration in range(plain.trainer.max_epochs):
        ctx = Context(task, None, None, Sampling(), seed=0, iteration=iteration)
        episodes = rollout.collect(
            [(slot, task[index]) for slot, index in enumerate(curriculum.select(data.num_prompts, ctx))], ctx
        )
        for episode in episodes:
            episode.scores = {"exact": float(episode.prompt.index % 3 > 0)}
        groups = [[e.light() for e in episodes[i : i + 2]] for i in range(0, len(episodes), 2)]
        rollout.observe(groups)
        assert all(group[0].prompt.index % 3 == 0 for group in groups if "hint" in group[0].prompt.info)
        hinted.append(rollout.metrics()["rollout/hinted"])
    assert max(hinted[: data.rollout.start_iteration]) == 0
    # a third of the prompts, of which four fifths draw a part of the solution
    second = hinted[data.rollout.start_iteration :]
    assert sum(second) / len(second) == pytest.approx(1 / 3 * 4 / 5, abs=0.05)


def test_refusal():
    with pytest.raises(ValueError, match="start_iteration"):
        HintedUnsolved(Played(), start_iteration=-1)
