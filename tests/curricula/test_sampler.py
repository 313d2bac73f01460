from dataclasses import dataclass
from itertools import chain

import pytest

from mmrl.core.types import Context, Prompt, Sampling, Task
from mmrl.curricula.sampler import FixedSubset, Shuffled

LAWS = [lambda: FixedSubset(16)]


@dataclass(frozen=True)
class Numbers(Task):
    """`size` problems without content."""

    size: int
    name = "numbers"
    split = "train"

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return Prompt(str(index))

    def score(self, episode):
        return {}

    def on(self, split):
        return self


def at(iteration: int, size: int = 10, seed: int = 0, rank: int = 0) -> Context:
    return Context(Numbers(size), None, None, Sampling(), seed=seed, iteration=iteration, rank=rank)


def draws(curriculum, counts, size=10, seed=0, start=0):
    return [curriculum.select(count, at(start + i, size, seed)) for i, count in enumerate(counts)]


def test_every_problem_once_per_pass():
    flat = list(chain(*draws(Shuffled(), [3] * 20)))
    passes = [flat[start : start + 10] for start in range(0, 60, 10)]
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert len({tuple(one) for one in passes}) == 6  # in another order each time


@pytest.mark.parametrize("count", [3, 7, 9, 10])
def test_no_problem_twice_in_an_iteration(count):
    assert all(len(set(chosen)) == count for seed in range(20) for chosen in draws(Shuffled(), [count] * 20, seed=seed))


def test_refills_of_an_iteration_do_not_repeat_its_problems():
    curriculum = Shuffled()
    for iteration in range(30):
        rounds = [curriculum.select(count, at(iteration)) for count in (4, 3, 2)]
        assert len(set(chain(*rounds))) == 9


def test_more_than_there_are_repeats_as_little_as_possible():
    (chosen,) = draws(Shuffled(), [25])
    assert sorted(chosen[:10]) == sorted(chosen[10:20]) == list(range(10))
    assert len(set(chosen[20:])) == 5


def test_order_depends_on_the_seed_only():
    counts = [4, 6, 5]
    assert draws(Shuffled(), counts) == draws(Shuffled(), counts)
    assert draws(Shuffled(), counts) != draws(Shuffled(), counts, seed=1)
    by_rank = [[Shuffled().select(8, at(0, rank=rank))] for rank in range(3)]
    assert by_rank[0] == by_rank[1] == by_rank[2]


@pytest.mark.parametrize("make", [Shuffled, lambda: FixedSubset(7)])
@pytest.mark.parametrize("stop", range(1, 8))
def test_resume_is_the_same_walk(make, stop):
    counts = [4, 6, 5, 3, 9, 1, 8, 7]
    uninterrupted = draws(make(), counts)
    first, second = make(), make()
    before = draws(first, counts[:stop])
    state = first.state_dict()
    first.select(2, at(99))  # what happens after saving does not reach into the saved state
    second.load_state_dict(state)
    assert before + draws(second, counts[stop:], start=stop) == uninterrupted


def test_resume_between_two_rounds_of_an_iteration():
    first, second = Shuffled(), Shuffled()
    for curriculum in (first, second):
        curriculum.select(7, at(0))
    before = first.select(5, at(1))
    second.load_state_dict(first.state_dict())
    after = second.select(5, at(1))
    assert sorted(before + after) == list(range(10))
    assert after == first.select(5, at(1))


def test_another_task_size_is_refused():
    curriculum = Shuffled()
    curriculum.select(3, at(0))
    with pytest.raises(ValueError, match=r"walking through 10 problems, but task 'numbers' has 11; resume with"):
        curriculum.select(3, at(1, size=11))
    with pytest.raises(ValueError, match="'numbers' has no problems"):
        Shuffled().select(1, at(0, size=0))


def test_fixed_goes_round_the_first_problems():
    assert draws(FixedSubset(4), [4, 4]) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert draws(FixedSubset(4), [3, 3]) == [[0, 1, 2], [3, 0, 1]]
    assert draws(FixedSubset(2), [5]) == [[0, 1, 0, 1, 0]]


def test_fixed_refuses_more_than_there_are():
    with pytest.raises(ValueError, match=r"curriculum\.count is 11, but task 'numbers' \(train\) has only 10"):
        FixedSubset(11).select(1, at(0))
    with pytest.raises(ValueError, match="at least 1"):
        FixedSubset(0)
