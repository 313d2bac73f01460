"""Stored initial states: disjoint splits, seeds that select them, and a task that poses each once."""

from dataclasses import dataclass

import pytest

from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Sim
from sims.chunked.sim import ChunkedSim
from sims.host.states import seed_of_state, split_states, state_of
from sims.states import StoredStateTask
from sims.task import SimTask, split_of

TABLE = split_states({"a": 5, "b": 4}, 2)


@dataclass(frozen=True)
class Stored(Sim):
    """A simulator with the states of TABLE."""

    num_held_out: int = 2
    name = "stored"

    def make(self, num_envs):
        raise NotImplementedError

    def stored_states(self, split):
        return len(split_states({"a": 5, "b": 4}, self.num_held_out)[split])

    def task_of(self, seed):
        return state_of(seed, TABLE)[0]


def test_the_last_states_of_each_task_are_held_out_and_tasks_take_turns():
    assert TABLE["train"] == [["a", 0], ["b", 0], ["a", 1], ["b", 1], ["a", 2]]
    assert TABLE["held_out"] == [["a", 3], ["b", 2], ["a", 4], ["b", 3]]
    variants = split_states({"a": 5}, 2, {"a+swap": 5})
    assert variants["held_out"] == [["a+swap", 3], ["a+swap", 4]] and variants["train"] == [["a", i] for i in range(3)]
    with pytest.raises(ValueError, match=r"task 'b' has 4 stored states, so 0 to 4"):
        split_states({"a": 5, "b": 4}, 5)


def test_every_seed_selects_a_state_of_its_split():
    for split, states in TABLE.items():
        seeds = [seed_of_state(split, i) for i in range(len(states))]
        assert [list(state_of(seed, TABLE)) for seed in seeds] == states
        assert {split_of(seed) for seed in seeds} == {split}
    assert list(state_of(2**63 + 1, TABLE)) in TABLE["held_out"]
    with pytest.raises(ValueError, match="no stored state belongs to the split 'train'"):
        state_of(0, split_states({"a": 5}, 5))


def test_the_task_poses_each_state_once_and_draws_where_there_are_none():
    task = StoredStateTask(Stored(), split="held_out")
    posed = [list(state_of(task[i].info["seed"], TABLE)) for i in range(len(task))]
    assert posed == TABLE["held_out"] and task[1].info["task"] == "b"
    assert len(StoredStateTask(Stored(), count=3)) == 3 and len(task.on("train")) == 5
    with pytest.raises(IndexError, match="4 stored initial states"):
        task[4]
    chunked = StoredStateTask(ChunkedSim(Stored(), chunk=2), split="held_out")
    assert [chunked[i].info for i in range(4)] == [task[i].info for i in range(4)] and len(chunked) == 4
    drawn = StoredStateTask(Stored(num_held_out=0), split="held_out")
    assert len(drawn) == 4096 and drawn[7] == SimTask(Stored(num_held_out=0), split="held_out")[7]


def test_a_configuration_chooses_the_task_from_its_simulator():
    pytest.importorskip("msgpack")

    def find_task(*words):
        return to_lightning(compose([*words, "policy.path=null"]))["data"]["init_args"]["task"]["class_path"]

    sizes = ("policy.action_dims=7", "policy.chunk=1", "policy.proprio_dims=8")
    assert find_task("recipe=demo_vla", "sim=libero", *sizes) == "sims.states.StoredStateTask"
    inner = ("sim.sim._target_=sims.libero.sim.LiberoSim", "sim.chunk=4")
    assert find_task("recipe=demo_vla", "sim=chunked", *inner, *sizes) == "sims.states.StoredStateTask"
    assert find_task("recipe=demo_vla", "sim=reach") == "sims.task.SimTask"
