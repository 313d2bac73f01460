"""Off-policy runs in several processes are resumed bit for bit, and in other numbers of processes without a loss."""

import pytest
import torch
from torch.testing import assert_close

from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, words

RUN = (
    *("recipe=sac", "policy.hidden=[8]", "model.models.critic.hidden=[8]", "data.learning_starts=10"),
    *("data.rollout.num_envs=3", "data.rollout.horizon=8", "data.gradient_steps=5", "data.updates_per_step=2"),
    *("data.replay.capacity=60", "data.replay.batch_size=8", "data.replay.n_steps=2", "data.evaluation.count=2"),
    *("data.task.sim.max_episode_steps=20", "trainer.callbacks.last.every_n_epochs=1"),
    "trainer.check_val_every_n_epoch=1",
)


def run(folder, processes, *more):
    """The records of the processes of a run."""
    if processes == 1:
        return [fit(folder, *RUN, *more)]
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(["fit", *words(folder, *RUN, *more, f"trainer.devices={processes}", "strategy=ddp")], folder, processes)
    return [record(folder, rank) for rank in range(processes)]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The checkpoint of the first two iterations, and what the run had then, by the number of processes."""
    done = {}

    def begin(processes):
        if processes not in done:
            folder = tmp_path_factory.mktemp(f"of_{processes}")
            records = run(folder, processes, "trainer.max_epochs=2")
            done[processes] = f"ckpt_path='{folder / 'checkpoints/last.ckpt'}'", records[0]
        return done[processes]

    return begin


def test_a_resumed_run_is_the_uninterrupted_one(begun, tmp_path):
    whole = run(tmp_path / "whole", 2, "trainer.max_epochs=4")
    resumed = run(tmp_path / "resumed", 2, "trainer.max_epochs=4", begun(2)[0])
    for one, other in zip(whole, resumed):
        assert_close(one["weights"], other["weights"], atol=0, rtol=0)
        for part in ("metrics", "minibatches"):
            assert len(other[part]) == len(one[part]) / 2
            assert_close(one[part][len(other[part]) :], other[part], atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_shares_out_the_transitions(before, after, begun, tmp_path):
    checkpoint, left = begun(before)
    resumed = run(tmp_path, after, "trainer.max_epochs=3", checkpoint)
    mine, old = (one["data"]["replay"][0] for one in (resumed[0], left))
    assert mine["num_transitions"] == old["num_transitions"] + 24
    # the rows that were not overwritten since are where they were
    written = (mine["storage"]["head"] - old["storage"]["head"]) % 60
    place = (mine["storage"]["head"] + torch.arange(60 - written)) % 60
    kept = place[place < old["storage"]["size"]]
    assert 24 < written < 36 and len(kept) > 20
    for name, column in old["storage"]["columns"].items():
        assert_close(mine["storage"]["columns"][name][kept], column[kept], atol=0, rtol=0)
    last = resumed[0]["metrics"][-1]
    assert last["env_steps"] == 72 and last["replay/rows"] == 60
    for other in resumed[1:]:
        assert_close(resumed[0]["weights"], other["weights"], atol=0, rtol=0)
