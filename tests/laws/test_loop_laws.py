"""Laws of schedules, curricula, transforms of episodes and of rows: what the loop relies on for each of them."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.columns import find_column
from mmrl.core.types import Collector, Context, Episode, Prompt, Sampling, Task
from mmrl.curricula.base import Curriculum
from mmrl.curricula.poisson import PoissonSampling
from mmrl.methods.robots.rwfm import AddExpertEpisodes
from mmrl.policies.text.policy import TextPolicy
from mmrl.schedules.base import Schedule
from mmrl.transforms.base import EpisodeTransform, StatefulTransform
from mmrl.transforms.rows.base import RowTransform
from tests.laws.example import Example
from tests.laws.law_examples import (
    CURRICULA,
    ENTRIES,
    EPISODE_TRANSFORMS,
    ROW_TRANSFORMS,
    SCHEDULES,
    STATEFUL,
    STATELESS,
    find_missing,
)
from tests.policies.text.oracle import TINY, decided


def names(examples: list[Any]) -> list[str]:
    return [f"{type(make()).__name__}-{number}" for number, make in enumerate(examples)]


def each(examples: list[Any]) -> Any:
    return pytest.mark.parametrize("make", examples, ids=names(examples))


def saved(state: Any) -> Any:
    """The state after a checkpoint, read as checkpoints are: without running code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("base", "examples"),
    [
        (Schedule, SCHEDULES),
        (Curriculum, CURRICULA),
        (EpisodeTransform, EPISODE_TRANSFORMS),
        (RowTransform, ROW_TRANSFORMS),
    ],
)
def test_every_part_has_an_example(base, examples):
    assert not find_missing(base, examples)


def test_every_entry_of_laws_is_tried():
    """Neither a part of another kind nor an Example of one that a function has to build is passed over."""
    wrong = [
        part for entry, part in ENTRIES if not isinstance(part, STATELESS if isinstance(entry, Example) else STATEFUL)
    ]
    assert not wrong, "an Example is of an annotator, a term or a weighting; others are lambda: PART(...)"


def metrics_of(iteration: int) -> dict[str, float]:
    wave = 1 + math.sin(iteration)
    names = ("train/kl/mean", "train/entropy/mean", "train/gradient_norm", "train/imitation/gradient_norm")
    return dict.fromkeys(names, wave)


@each(SCHEDULES)
def test_a_schedule_is_finite_and_asking_changes_nothing(make):
    schedule = make()
    for iteration in range(12):
        assert math.isfinite(schedule(iteration))
        assert schedule(iteration) == schedule(iteration)
        schedule.observe(metrics_of(iteration))


@each(SCHEDULES)
def test_a_resumed_schedule_goes_on_like_the_other(make):
    one, other = make(), make()
    for iteration in range(4):
        one.observe(metrics_of(iteration))
    other.load_state_dict(saved(one.state_dict()))
    for iteration in range(4, 12):
        assert one(iteration) == other(iteration)
        for schedule in (one, other):
            schedule.observe(metrics_of(iteration))


class Kinds(Task):
    """Thirty-two problems of two kinds, in an odd order, which are levels of one parameter too."""

    name, split = "kinds", "train"
    level_bounds = {"x": (-1.0, 1.0)}

    def level_index(self, level, start):
        return min(int((level["x"] + 1) * 16), 31)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return Prompt(f"kinds/train/{index}", info={"kind": "ab"[index % 3 == 0]})

    def score(self, episode):
        return {}

    def on(self, split):
        return self


def context(iteration: int, **changes: Any) -> Context:
    policy = SimpleNamespace(concatenate=lambda parts: {"state": torch.cat([part["state"] for part in parts])})
    ctx = Context(Kinds(), None, policy, Sampling(), seed=3, iteration=iteration, group_size=4, num_prompts=4)
    return replace(ctx, **changes)


def light_groups(indices: list[int], iteration: int) -> list[list[Episode]]:
    """Scored groups of these problems, as a curriculum sees them: the larger the index, the more fails."""
    rewards = {index: [float((index * 7 + k + iteration) % 32 > index) for k in range(4)] for index in indices}
    return [
        [
            Episode(
                Kinds()[index],
                group,
                k,
                reward=reward,
                scores={"reward": reward, "return": reward, "level/x": index / 16 - 1},
            )
            for k, reward in enumerate(rewards[index])
        ]
        for group, index in enumerate(indices)
    ]


def play(curriculum: Curriculum, iterations: range) -> list[list[int]]:
    chosen = []
    for iteration in iterations:
        chosen.append(curriculum.select(4, context(iteration)))
        curriculum.observe(light_groups(chosen[-1], iteration))
    return chosen


@each(CURRICULA)
def test_a_curriculum_selects_problems_that_there_are_and_is_deterministic(make):
    chosen = play(make(), range(8))
    counts = {len(indices) for indices in chosen}
    # four at each iteration; of Poisson sampling on average
    assert len(counts) > 1 and 1 <= sum(counts) / len(counts) < 8 if type(make()) is PoissonSampling else counts == {4}
    assert all(0 <= index < 32 for indices in chosen for index in indices)
    assert play(make(), range(8)) == chosen


@each(CURRICULA)
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_resumed_curriculum_goes_on_like_the_other(make, stop):
    one, other = make(), make()
    play(one, range(stop))
    other.load_state_dict(saved(one.state_dict()))
    assert play(one, range(stop, 8)) == play(other, range(stop, 8))


class NoFurther(Collector):
    """Further prompts and samples that were asked for bring nothing, as on an idle process."""

    def collect_prompts(self, count):
        return []

    def collect_samples(self, indices):
        assert not indices
        return []

    def score(self, episodes):
        assert not episodes


@pytest.fixture(scope="module")
def idle():
    """The changes of a context on a process without episodes."""
    policy = decided(TextPolicy(config=TINY, hidden_layers=[1.0])).eval()
    return {"collector": NoFurther(), "policy": policy, "models": {"reference": policy, "editor": policy}}


@each(EPISODE_TRANSFORMS)
def test_columns_that_a_transform_writes_are_described(make):
    undescribed = [name for name in make().writes() if find_column(name) is None]
    assert not undescribed, "call register_columns of mmrl.core.columns in the module of the part"


@each([make for make in EPISODE_TRANSFORMS if not isinstance(make(), AddExpertEpisodes)])
def test_no_episodes_stay_none(make, idle):
    """A process can be without episodes: it takes part in what is gathered and has none afterwards."""
    part = make()
    for iteration in range(3):
        assert part([], context(iteration, **idle)) == []


@each([make for make in EPISODE_TRANSFORMS if isinstance(make(), StatefulTransform)])
def test_a_new_transform_loads_what_a_new_one_saves(make, idle):
    part = make()
    part([], context(0, **idle))
    other = make()
    other.load_state_dict(saved(part.state_dict()))
    assert repr(other.state_dict()) == repr(part.state_dict())


def rows(count: int, iteration: int) -> Batch:
    """This many rows, two for a group, with advantages of both signs and one choice each."""
    generator = torch.Generator().manual_seed(iteration)
    advantages = torch.randn(count, 1, generator=generator)
    index = torch.arange(count)
    return Batch(
        **{"obs.state": torch.randn(count, 3, generator=generator)},
        action=index[:, None],
        action_mask=torch.ones(count, 1, dtype=torch.bool),
        behavior_logprobs=torch.zeros(count, 1),
        advantages=advantages,
        reward=advantages[:, 0],
        episode_reward=(advantages[:, 0] > 0).float(),
        group=index // 2,
        prompt_id=index // 2,
        episode=index,
        step=torch.zeros(count, dtype=torch.long),
        policy_version=torch.full((count,), iteration),
        is_demo=torch.zeros(count, dtype=torch.bool),
        is_last=torch.ones(count, dtype=torch.bool),
    )


@each(ROW_TRANSFORMS)
def test_a_row_transform_leaves_its_input_and_gives_rows_that_there_were(make):
    part, known = make(), set()
    for iteration in range(4):
        batch = rows(12, iteration)
        before = {name: column.clone() for name, column in batch.items()}
        known |= {tuple(state) for state in batch["obs.state"].tolist()}
        result = part(batch, context(iteration))
        assert all(torch.equal(batch[name], column) for name, column in before.items())
        assert set(result) == set(batch)
        assert {tuple(state) for state in result["obs.state"].tolist()} <= known
        assert int((iteration - result["policy_version"]).max()) <= part.max_age


@each(ROW_TRANSFORMS)
def test_a_row_transform_takes_a_process_without_rows(make):
    part = make()
    for iteration in range(3):
        assert set(part(rows(0, iteration), context(iteration))) == set(rows(0, iteration))


@each(ROW_TRANSFORMS)
def test_a_resumed_row_transform_goes_on_like_the_other(make):
    one, other = make(), make()
    for iteration in range(3):
        one(rows(12, iteration), context(iteration))
    other.load_state_dict(saved(one.state_dict()))
    for iteration in range(3, 8):
        ours, theirs = (part(rows(12, iteration), context(iteration)) for part in (one, other))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
