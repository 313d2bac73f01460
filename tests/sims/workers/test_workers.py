"""Environments in processes of this Python: equal results, failures that are counted, saved states, videos."""

import os
import signal
import time

import numpy as np
import pytest

from mmrl.evaluation.video.recording import EpisodeVideo, RecordVideo
from sims.gym import GymSim
from sims.point import PointSim
from sims.tabletop.sims import Push
from tests.sims.workers.equality import assert_equal, play
from tests.sims.workers.fragile import DIE, GO, HANG, LEAVE, RAISE

pytest.importorskip("msgpack")
from sims.workers import WorkerSim
from sims.workers.process import SimulatorError, WorkerDiedError

FRAGILE = GymSim("tests.sims.workers.fragile:Fragile-v0")
PUSH = Push(image_size=8, max_decisions=3)


@pytest.mark.parametrize(
    ("sim", "workers"),
    [
        (GymSim("CartPole-v1"), 2),
        (GymSim("CartPole-v1", autoreset="same_step"), 2),
        (GymSim("CartPole-v1", autoreset="next_step"), 2),
        (PUSH, 2),
        pytest.param(PUSH, 3, marks=pytest.mark.slow),
        pytest.param(PUSH, 1, marks=pytest.mark.slow),
        pytest.param(PointSim(steps=5), 3, marks=pytest.mark.slow),
    ],
)
def test_results_do_not_depend_on_the_number_of_processes(sim, workers):
    assert_equal(play(sim, 5, 24), play(WorkerSim(sim, workers), 5, 24))


def test_other_methods_are_those_of_the_simulator():
    spread = WorkerSim(PUSH, 2)
    assert (spread.name, spread.sizes(), spread.contract()) == (PUSH.name, PUSH.sizes(), PUSH.contract())
    assert spread.stepwise() == WorkerSim(PUSH.stepwise(), 2) and spread.task_of(3) == PUSH.task_of(3)
    assert spread.parts == PUSH.parts and not hasattr(WorkerSim(FRAGILE, 1), "expert")
    for wrong in ({"workers": 0}, {"workers": -1}, {"workers": 1, "timeout_s": 0}):
        with pytest.raises(ValueError, match="must be"):
            WorkerSim(PUSH, **wrong)


def test_experts_videos_and_states():
    """The expert plans, frames are drawn after every control step, and a saved state goes on, all in the processes."""
    frames, chunks = {}, {}
    spread = WorkerSim(PUSH, 2)
    for sim in (PUSH, spread):
        videos = [EpisodeVideo(), EpisodeVideo()]
        inner = sim.make(3)
        env = RecordVideo(inner, videos, 12)
        env.reset(seed=[4, 6, 8])
        chunks[sim] = sim.expert(inner)
        env.step(chunks[sim])
        frames[sim] = [list(video.frames) for video in videos]
        if sim is spread:
            state = inner.state_dict()
            expected = inner.step(sim.expert(inner))
            inner.load_state_dict(state)
            assert_equal(expected, inner.step(chunks[sim] * 0 + sim.expert(inner)))
            with pytest.raises(ValueError, match="workers=1, this one 2"):
                inner.load_state_dict({"workers": state["workers"][:1]})
        env.close()
    assert_equal(chunks[PUSH], chunks[spread])
    assert len(frames[PUSH][0]) == PUSH.chunk + 1
    assert_equal(frames[PUSH], frames[spread])


@pytest.mark.parametrize(
    ("action", "reason"), [(DIE, "signal SIGKILL"), (HANG, "no answer within 3 s"), (LEAVE, "exit code 3")]
)
def test_a_process_that_dies_or_hangs_is_started_again(action, reason):
    env = WorkerSim(FRAGILE, 2, timeout_s=3.0).make(4)
    begun, _ = env.reset(seed=[0, 1, 2, 3])
    env.step(np.full(4, GO))
    seen, rewards, terminated, truncated, infos = env.step(np.array([GO, GO, GO, action]))
    assert truncated.tolist() == [False, False, True, True] and not terminated.any()
    assert rewards[2:].tolist() == [0, 0] and rewards[0] == begun["state"][0, 0]
    assert [error is not None for error in infos["error"]] == [False, False, True, True]
    assert reason in infos["error"][3] and "Fragile-v0" not in infos["error"][0:1]
    assert seen["state"][:, 1].tolist() == [2, 2, 1, 1] and seen["instruction"][3].startswith("step from")
    _, _, _, truncated, infos = env.step(np.full(4, GO))  # what ended keeps still, and is no second error
    assert truncated.tolist() == [False, False, True, True] and not any(infos.get("error", [None]))
    again, _ = env.reset(seed=[0, 0, 2, 3], options={"reset_mask": np.array([False, False, True, True])})
    assert again["state"][:2, 1].tolist() == [3, 3]
    assert (again["state"][2:] == begun["state"][2:]).all() and env.pool.restarts == 1
    assert env.step(np.full(4, GO))[0]["state"][:, 1].tolist() == [4, 4, 1, 1]
    env.close()


@pytest.mark.parametrize("moment", ["before a step", "within an answer", "before a long request"])
def test_a_process_that_is_stopped_ends_within_its_limit(moment):
    env = WorkerSim(FRAGILE, 1, timeout_s=1.0).make(1)
    env.reset(seed=[0])
    worker, began = env.pool.workers[0], time.monotonic()
    if moment == "before a step":
        os.kill(worker.process.pid, signal.SIGSTOP)
        *_, truncated, infos = env.step(np.array([GO]))
        assert truncated.tolist() == [True] and "no answer within 1 s; the process was killed" in infos["error"][0]
    elif moment == "within an answer":
        worker.send("render", arguments=[0, 2000])  # 12 MB, of which the connection holds a part
        assert worker.connection.poll(20)
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(WorkerDiedError, match="no answer within 1 s; the process was killed"):
            worker.receive()
    else:
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(WorkerDiedError, match="no answer within 1 s; the process was killed"):
            worker.ask("set", name="nothing", value=np.zeros(2_000_000))
    assert worker.process.poll() == -signal.SIGKILL and time.monotonic() - began < 25
    env.close()


@pytest.mark.parametrize("request_name", ["render", "load_state_dict", "state_dict"])
def test_a_process_that_is_stopped_is_named_where_no_episode_can_take_the_error(request_name):
    env = WorkerSim(FRAGILE, 1, timeout_s=1.0).make(1)
    env.reset(seed=[0])
    os.kill(env.pool.workers[0].process.pid, signal.SIGSTOP)
    arguments = {"render": (0,), "load_state_dict": ({"workers": [{}]},), "state_dict": ()}[request_name]
    for _ in range(2):  # the second one finds it dead
        with pytest.raises(
            (SimulatorError, NotImplementedError), match=r"process 1 of 1 of sims\.gym.*no answer within 1 s"
        ):
            getattr(env, request_name)(*arguments)
    assert env.reset(seed=[0])[0]["state"].shape == (1, 2) and env.pool.restarts == 1
    env.close()


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_jumps_within_a_step_changes_no_limit(jump, monkeypatch):
    env, clock = WorkerSim(FRAGILE, 1, timeout_s=2.0).make(1), time.time
    env.reset(seed=[0])
    for action in (GO, HANG):
        env.step_async(np.array([action]))
        began = time.monotonic()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: clock() + jump)
            *_, truncated, infos = env.step_wait()
        assert truncated.tolist() == [action == HANG] and ("error" in infos) == (action == HANG)
    assert "no answer within 2 s" in infos["error"][0] and 1.9 < time.monotonic() - began < 20
    env.close()


def test_part_of_a_process_that_died_can_be_reset():
    env = WorkerSim(FRAGILE, 1).make(2)
    env.reset(seed=[0, 1])
    env.step(np.array([DIE, GO]))
    env.reset(seed=[5, 5], options={"reset_mask": np.array([True, False])})
    for _ in range(3):
        _, rewards, _, truncated, infos = env.step(np.full(2, GO))
        assert truncated.tolist() == [False, True] and rewards[1] == 0 and not any(infos.get("error", [None]))
    env.close()


def test_an_environment_that_raises_fails_alone_and_only_disabled_autoreset_survives_a_death():
    env = WorkerSim(FRAGILE, 1).make(2)
    env.reset(seed=[0, 1])
    _, _, _, truncated, infos = env.step(np.array([RAISE, GO]))
    assert truncated.tolist() == [True, False] and infos["error"].tolist() == ["ValueError: a broken joint", None]
    env.close()
    other = WorkerSim(GymSim(FRAGILE.id, autoreset="next_step"), 1).make(2)
    other.reset(seed=[0, 1])
    with pytest.raises(SimulatorError, match="autoreset=disabled"):
        other.step(np.array([DIE, GO]))
    other.close()


def test_the_simulator_must_be_buildable_elsewhere():
    with pytest.raises(ValueError, match="must be a dataclass"):
        WorkerSim(object(), 1)
    with pytest.raises(TypeError, match="cannot be sent"):
        WorkerSim(GymSim("CartPole-v1", kwargs={"render_mode": object()}, fast_render=False), 1).make(1)
