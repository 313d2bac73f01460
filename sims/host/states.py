"""Stored initial states of a simulator: those for training, those held out, and the one that a seed selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

State = Sequence
"""[task, id]: a task's name, and the number of one of its stored states."""
StateTable = Mapping[str, Sequence[State]]
"""The states of the splits "train" and "held_out", in the order in which they are numbered."""
_SPLITS = ("train", "held_out")


def split_states(
    counts: Mapping[str, int], num_held_out: int, held_out_counts: Mapping[str, int] | None = None
) -> dict[str, list[list]]:
    """Split stored states: of each task the last `num_held_out` are held out, the ones before are for training.

    Within a split the tasks take turns, so that its first states are of as many tasks as possible.

    Args:
        counts: number of stored states by task.
        num_held_out: of each task.
        held_out_counts: tasks whose last states are held out in place of those of `counts`, such as variants of them.

    Raises:
        ValueError: a task has fewer states than are held out.
    """
    variants = counts if held_out_counts is None else held_out_counts
    for name, count in {**counts, **variants}.items():
        if not 0 <= num_held_out <= count:
            raise ValueError(f"task {name!r} has {count} stored states, so 0 to {count} of them can be held out")
    train = {name: range(count - num_held_out) for name, count in counts.items()}
    held_out = {name: range(count - num_held_out, count) for name, count in variants.items()}
    return {"train": _interleave(train), "held_out": _interleave(held_out)}


def state_of(seed: int, states: StateTable) -> tuple[str, int]:
    """The task and the number of the stored state that a seed selects, from the states of the seed's split.

    Odd seeds are held out, as in `sims.task`. Seed 2 i + 1 selects held-out state i, modulo their number; so a stream
    of random seeds draws all states of its split equally often.

    Raises:
        ValueError: the split has no states.
    """
    split = _SPLITS[seed & 1]
    if not states[split]:
        raise ValueError(f"no stored state belongs to the split {split!r}; hold out fewer, or more, states")
    task, number = states[split][(seed >> 1) % len(states[split])]
    return task, number


def seed_of_state(split: str, index: int) -> int:
    """The smallest seed that selects state `index` of a split."""
    return index << 1 | _SPLITS.index(split)


def _interleave(numbers: Mapping[str, range]) -> list[list]:
    rounds = max((len(each) for each in numbers.values()), default=0)
    return [[name, each[i]] for i in range(rounds) for name, each in numbers.items() if i < len(each)]
