"""Rows between annotating and weighing: which are kept, which come back, and what is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import NO_GROUP, Batch, Ragged
from mmrl.core.types import Collector, Context, Sampling
from mmrl.data.collate import apply_rows
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.transforms.rows.base import RowTransform
from mmrl.transforms.rows.concatenation import concatenate, copy_rows, from_plain, to_plain
from mmrl.transforms.rows.replay import STRIDE, ReplayRows
from mmrl.transforms.rows.select import SelectByAdvantage

LAWS = [
    lambda: ReplayRows(groups=2),
    lambda: SelectByAdvantage(0.5),
]

POLICY = SimpleNamespace(
    concatenate=lambda parts: {"input_ids": torch.cat([part["input_ids"] for part in parts])}
)  # prompts of one length


def rows(groups, rewards, version=0, width=2):
    """One row for each episode; its advantage is its reward."""
    count = len(groups)
    reward = torch.tensor(rewards)
    return Batch(
        action=torch.ones(count, width, dtype=torch.long),
        action_mask=torch.ones(count, width, dtype=torch.bool),
        advantages=reward[:, None].expand(count, width).clone(),
        episode_reward=reward,
        group=torch.tensor(groups),
        prompt_id=torch.tensor(groups),
        episode=torch.arange(count),
        step=torch.zeros(count, dtype=torch.long),
        policy_version=torch.full((count,), version),
        is_demo=torch.zeros(count, dtype=torch.bool),
        **{"obs.input_ids": torch.tensor(groups)[:, None]},
    )


def context(iteration=0, rank=0, size=1, collector=None):
    return Context(
        *(None, None, POLICY, Sampling()),
        seed=0,
        iteration=iteration,
        rank=rank,
        world_size=size,
        collector=collector or Collector(),
    )


class Elsewhere(Collector):
    """Another rank holds these items."""

    def __init__(self, *items):
        self.items = items

    def gather(self, items):
        return [*items, *self.items]


def test_no_row_transform_gives_the_same_batch():
    batch = rows([0, 1], [0.0, 1.0])
    assert apply_rows({}, batch, context(), 0) == (batch, {})


def test_the_largest_advantages_are_kept():
    batch = rows([0, 0, 1, 1], [0.5, -2.0, 1.0, 0.5])
    assert SelectByAdvantage(0.5)(batch, context())["advantages"][:, 0].tolist() == [-2.0, 1.0]
    assert SelectByAdvantage(0.75)(batch, context())["advantages"][:, 0].tolist() == [0.5, -2.0, 1.0]  # of the first
    assert SelectByAdvantage(1.0)(batch, context()).rows == 4


def test_two_processes_keep_what_one_keeps():
    whole, parts = rows([0, 0, 1, 1], [0.5, -2.0, 1.0, 0.5]), []
    own = [rows([0, 0], [0.5, -2.0]), rows([1, 1], [1.0, 0.5])]
    given = []
    for rank in (0, 1):  # what each process says
        collector = SimpleNamespace(gather=lambda items: given.extend(items) or items)
        SelectByAdvantage(0.5)(own[rank], context(rank=rank, size=2, collector=collector))
    for rank in (0, 1):
        collector = SimpleNamespace(gather=lambda items: given)
        parts.append(SelectByAdvantage(0.5)(own[rank], context(rank=rank, size=2, collector=collector)))
    both = [value for part in parts for value in part["advantages"][:, 0].tolist()]
    assert both == SelectByAdvantage(0.5)(whole, context())["advantages"][:, 0].tolist()


def test_failed_groups_come_back_until_they_are_too_old():
    part = ReplayRows(groups=1, max_age=2, max_reward=0.25)
    first = part(rows([0, 0, 1, 1], [0.0, 0.2, 1.0, 1.0]), context(0))
    assert first.rows == 4 and list(part.buffer) == [(0, 0)]
    for iteration in (1, 2):
        batch = part(rows([0, 0], [1.0, 1.0], version=iteration, width=3), context(iteration))
        assert batch["group"].tolist() == [0, 0, STRIDE, STRIDE]
        assert batch["policy_version"].tolist() == [iteration, iteration, 0, 0]
        assert batch["episode"].tolist() == [0, 1, 2, 3] and batch["prompt_id"].tolist() == [0, 0, 1, 1]
        assert batch["action_mask"].tolist()[2:] == [[True, True, False]] * 2
        assert_close(batch["advantages"][2:, 0], torch.tensor([0.0, 0.2]))
    assert part(rows([0], [1.0], version=3), context(3)).rows == 1 and not part.buffer


def test_the_buffer_holds_the_newest_groups_of_all_processes():
    part = ReplayRows(groups=0, capacity=2)
    part(rows([0], [0.0]), context(0))
    part(rows([1], [0.0]), context(1, collector=Elsewhere((1, 0))))
    assert list(part.buffer) == [(1, 1)]


def test_a_saved_buffer_replays_the_same():
    one, other = ReplayRows(groups=2), ReplayRows(groups=2)
    one(rows([0, 1, 2], [0.0, 0.1, 0.2]), context(0))
    other.load_state_dict(one.state_dict())
    now = rows([0], [1.0], version=1)
    assert_close(dict(one(now, context(1))), dict(other(now, context(1))), atol=0, rtol=0)
    ReplayRows().load_state_dict({})


class Forget(RowTransform):
    def __call__(self, batch, ctx):
        return batch.select(torch.tensor([], dtype=torch.long))


def test_without_a_row_a_masked_one_takes_part():
    batch, metrics = apply_rows({"forget": Forget()}, rows([0, 1], [0.0, 1.0]), context(), 0)
    assert batch.rows == 1 and batch["group"].tolist() == [NO_GROUP] and not batch["action_mask"].any()
    assert metrics["rows/trained"] == 0
    again, _ = apply_rows({"select": SelectByAdvantage()}, batch, context(), 0)
    assert again.rows == 1 and again["group"].tolist() == [NO_GROUP]


class Old(ReplayRows):
    max_age = 0


def test_rows_older_than_declared_are_refused():
    part = Old(groups=1)
    part(rows([0], [0.0]), context(0))
    with pytest.raises(ValueError, match=r"iteration 1: data.rows \(old\) gave rows that weights of version 0 sampled"):
        apply_rows({"old": part}, rows([0], [1.0], version=1), context(1), 0)
    batch, metrics = apply_rows({"old": part}, rows([0], [1.0], version=2), context(2), 2)  # data.staleness=2
    assert batch.rows == 2 and metrics["rows/staleness"] in (0.5, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SelectByAdvantage(0.0),
        lambda: ReplayRows(groups=-1),
        lambda: ReplayRows(capacity=0),
        lambda: ReplayRows(max_age=0),
        lambda: ReplayRows(min_reward=1.0, max_reward=0.0),
    ],
)
def test_arguments_that_mean_nothing_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_ragged_columns_and_contexts_are_concatenated():
    def batch(group, items):
        own = rows([group, group], [0.0, 1.0])
        ragged = Ragged(torch.tensor(items), torch.tensor([len(items)]), torch.tensor([0, 0]))
        other = {"other.masked.input_ids": own["obs.input_ids"], "other.masked.prompt_id": own["prompt_id"]}
        return own.with_columns(packed_support_ids=ragged, **other, **{"other.masked.prompt_length": own["step"]})

    one, two = (copy_rows(batch(group, items), torch.tensor([0, 1])) for group, items in ((3, [1, 2]), (4, [5])))
    two = from_plain(to_plain(two))
    both = concatenate([one, two], POLICY)
    assert both["packed_support_ids"].values.tolist() == [1, 2, 1, 2, 5, 5]
    assert both["other.masked.prompt_id"].tolist() == both["prompt_id"].tolist() == [0, 0, 1, 1]
    del two["advantages"]
    with pytest.raises(ValueError, match=r"differ in the columns \['advantages'\]"):
        concatenate([one, two], POLICY)


def test_observations_are_concatenated_as_if_collated_at_once():
    """Prompts are padded at the start, and an image where the other rows have none is stored as ragged rows are."""
    policy = object.__new__(VisionLanguagePolicy)
    policy.__dict__["processor"] = SimpleNamespace(pad_token_id=0)
    image = torch.arange(4.0).reshape(2, 2)
    short = [{"input_ids": torch.tensor([5]), "mm_token_type_ids": torch.tensor([0])}]
    long = [{"input_ids": torch.tensor([6, 7, 8]), "mm_token_type_ids": torch.tensor([1, 1, 0]), "pixel_values": image}]
    found = policy.concatenate([policy.collate(short), policy.collate(long)])
    expected = policy.collate([*short, *long])
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        assert_close(found[name], expected[name])
    assert_close(found["pixel_values"].values, expected["pixel_values"].values)
    assert found["pixel_values"].lengths.tolist() == [0, 2]


class Meeting(Collector):
    """Ranks in threads, which gather what all of them say."""

    barrier, said = threading.Barrier(2), {}

    def __init__(self, rank):
        self.rank = rank

    def gather(self, items):
        self.said[self.rank] = list(items)
        self.barrier.wait(10)
        together = [item for rank in sorted(self.said) for item in self.said[rank]]
        self.barrier.wait(10)
        return together


def play(groups_of, rank=0, size=1, collector=None):
    """Rows of three iterations: the group, advantage and version of each that is trained on."""
    parts = {"replay": ReplayRows(groups=2, capacity=3, max_age=2), "select": SelectByAdvantage(0.75)}
    out = []
    for iteration in range(4):
        groups = groups_of[rank]
        rewards = [float((7 * group + 3 * iteration + i % 2) % 5) for i, group in enumerate(groups)]
        ctx = context(iteration, rank, size, collector)
        batch, _ = apply_rows(parts, rows(groups, rewards, version=iteration), ctx, 0)
        out.append([tuple(row) for row in zip(*(batch[n].tolist() for n in ("group", "policy_version", "step")))])
    return out


def test_replay_and_selection_do_not_depend_on_the_number_of_processes():
    one = play([[0, 0, 2, 2, 1, 1, 3, 3]])
    with ThreadPoolExecutor(2) as pool:
        own = [[0, 0, 2, 2], [1, 1, 3, 3]]
        both = list(pool.map(lambda rank: play(own, rank, 2, Meeting(rank)), range(2)))
    for iteration in range(4):
        assert sorted(one[iteration]) == sorted(both[0][iteration] + both[1][iteration])
    assert any(group >= STRIDE for group, _, _ in one[3])
