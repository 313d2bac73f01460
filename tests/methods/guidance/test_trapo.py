"""Majority answers, similarities of histories by hand, and which groups are trained on."""

from types import SimpleNamespace

import pytest

from mmrl.core.groups import group_episodes
from mmrl.core.types import Collector, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.guidance.trapo import SelectByTrajectory, majority_answer, trajectory_similarity

REFERENCES = [[0.1, 0.3, 0.5, 0.9], [0.2, 0.2, 0.6, 0.8]]


def test_the_majority_answer():
    assert majority_answer(["1", "2", "2", None]) == "2"
    assert majority_answer(["1", "1", "2", "2"]) is None  # a tie
    assert majority_answer([None, None, "3"]) == "3"
    assert majority_answer([None]) is None


def test_similarities_by_hand():
    assert trajectory_similarity([0.25, 0.375, 0.5, 0.75], REFERENCES) == pytest.approx(0.971685, abs=1e-6)
    assert trajectory_similarity([0.9, 0.6, 0.5, 0.3], REFERENCES) == pytest.approx(-0.911524, abs=1e-6)
    assert trajectory_similarity([0.5, 0.5, 0.5, 0.5], REFERENCES) == 0
    assert trajectory_similarity([0.1, 0.2], []) == 0
    # all are cut to the shortest reference: two visits that rise have one shape
    assert trajectory_similarity([0.0, 0.5, 0.0, 0.0], [[0.1, 0.3], *REFERENCES[:1]]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("size", range(2, 17))
def test_a_constant_history_is_like_no_other_at_any_group_size(size):
    """Less its mean, 0.2 five times leaves -2.8e-17 five times: a direction without its scale."""
    for right in range(size + 1):
        for visits in range(2, 9):
            constant, rising = [right / size] * visits, [visit / 10 for visit in range(visits)]
            assert trajectory_similarity(constant, [rising, constant]) == 0
            assert trajectory_similarity(rising, [constant]) == 0


def group(slot, index, outputs, scores=(0, 0, 0, 0)):
    """Completions with these answers; `scores` is what the verifier says."""
    prompt = Prompt(f"toy/train/{index}")
    turns = [[Turn(SimpleNamespace(output=text))] for text in outputs]
    pairs = zip(turns, scores)
    return [Episode(prompt, slot, k, t, scores={"exact": float(s)}, reward=9.0) for k, (t, s) in enumerate(pairs)]


def answers(right):
    """Four answers of which `right` agree and the others are all different."""
    return ["7"] * right + [f"x{k}" for k in range(4 - right)]


def context(iteration=0, collector=None):
    return Context(None, None, None, Sampling(), 0, iteration, group_size=4, collector=collector or Collector())


def labelled_and_not(part):
    known = [index for index in range(200) if part.is_labelled(index)]
    return known, [index for index in range(200) if index not in known]


def test_rewards_of_labelled_and_unlabelled_problems():
    part = SelectByTrajectory(labelled_fraction=0.5, warmup=9)
    (known, *_), (unknown, other, *_) = labelled_and_not(part)
    episodes = [
        *group(0, known, ["1", "1", "2", "3"], scores=(0, 0, 1, 0)),
        *group(1, unknown, ["1", "1", "2", "3"], scores=(0, 0, 1, 0)),  # the label is not read
        *group(2, other, ["1", "1", "2", "2"]),  # a tie
    ]
    kept = part(episodes, context())
    assert [e.reward for e in episodes] == [0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert list(group_episodes(kept)) == [0]  # the warm-up is on labelled problems
    assert part.state_dict()["histories"] == {known: [0.25], unknown: [0.5], other: [0.0]}


def test_a_tenth_is_labelled():
    assert 10 <= len(labelled_and_not(SelectByTrajectory())[0]) <= 30


def run(part, iterations, rising, falling, known, collector=None):
    """The groups that are kept in each iteration: a labelled problem and one that rises, one that falls."""
    result = []
    for iteration in range(iterations):
        episodes = [
            *group(0, known, answers(1), scores=[1] * (iteration + 1) + [0] * (3 - iteration)),
            *group(1, rising, answers(iteration + 1)),
            *group(2, falling, answers(4 - iteration)),
        ]
        result.append(list(group_episodes(part(episodes, context(iteration, collector)))))
    return result


def test_a_history_like_the_labelled_ones_is_trained_on():
    part = SelectByTrajectory(labelled_fraction=0.5, warmup=2, top_fraction=0.0)
    (known, *_), (rising, falling, *_) = labelled_and_not(part)
    assert run(part, 4, rising, falling, known) == [[0], [0], [0, 1], [0, 1]]
    assert part.state_dict()["matched"] == [rising]
    top = SelectByTrajectory(labelled_fraction=0.5, warmup=2, top_fraction=0.5, threshold=2.0, update_references=False)
    assert run(top, 4, rising, falling, known)[-1] == [0, 1] and top.state_dict()["matched"] == []
    all_of_them = SelectByTrajectory(labelled_fraction=0.5, warmup=2, top_fraction=1.0)
    assert run(all_of_them, 3, rising, falling, known)[-1] == [0, 1, 2]


def test_it_is_saved():
    part, again = (SelectByTrajectory(labelled_fraction=0.5, warmup=2) for _ in range(2))
    (known, *_), (rising, falling, *_) = labelled_and_not(part)
    run(part, 3, rising, falling, known)
    again.load_state_dict(part.state_dict())
    assert again.state_dict() == part.state_dict()
    SelectByTrajectory().load_state_dict({})


def test_refusals():
    for wrong in ({"labelled_fraction": 0.0}, {"top_fraction": 2.0}, {"warmup": -1}):
        with pytest.raises(ValueError, match="select_by_trajectory"):
            SelectByTrajectory(**wrong)
    with pytest.raises(ValueError):
        SelectByTrajectory(extract="nothing")


def test_a_matched_problem_is_a_reference_and_the_threshold_is_enough():
    """The labelled history is constant, the matched one is that of the candidate: (0 + 1) / 2 is above .4."""
    part = SelectByTrajectory(labelled_fraction=0.5, warmup=2, top_fraction=0.0)
    (known, *_), (matched, candidate, *_) = labelled_and_not(part)
    rising = [0.0, 0.5]
    histories = {known: [0.5, 0.5], matched: rising, candidate: rising}
    part.load_state_dict({"histories": histories, "matched": [matched]})
    assert part._match([(4, candidate, 0.5)], context(2)) == {4}
    exact = SelectByTrajectory(labelled_fraction=0.5, warmup=2, top_fraction=0.0, threshold=0.0)
    exact.load_state_dict({"histories": {known: [0.5, 0.5], candidate: rising}, "matched": []})
    assert exact._match([(4, candidate, 0.5)], context(2)) == {4}  # its similarity is 0


def test_an_answer_that_cannot_be_read_earns_nothing_at_a_tie():
    part = SelectByTrajectory(labelled_fraction=0.5, warmup=9, extract="boxed")
    unknown = labelled_and_not(part)[1][0]
    episodes = group(0, unknown, ["\\boxed{1}", "\\boxed{2}", "none", "none"])
    part(episodes, context())
    assert [e.reward for e in episodes] == [0, 0, 0, 0]
