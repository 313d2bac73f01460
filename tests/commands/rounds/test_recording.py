"""Record stages: what they write, in which order, and what is refused."""

import numpy as np
import pytest
import yaml

from mmrl.commands.rounds.checks import check_steps
from mmrl.commands.rounds.execution import Execution
from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.recording import EPISODES, SUCCESSES, ChunkActor, merge_recordings, record_stage
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.table import build_records
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Sampling
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.offline_episodes import OfflineEpisode

COMMON = ["recipe=rl100_push", "trainer.accelerator=cpu", "trainer.logger=false"]
STAGES = {
    "demos": {"kind": "record", "expert": True, "noise": 0.3, "count": 3},
    "more": {"kind": "record", "weights": "base", "count": 2, "offset": 3, "adds": ["demos"]},
}


def read_file(tmp_path, **stages):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"common": COMMON, "stages": {**STAGES, **stages}}, sort_keys=False))
    return read_rounds([str(path)])


def build(tmp_path, monkeypatch, **stages):
    """The execution of rounds whose record stages run in this process."""
    file = read_file(tmp_path, **stages)
    rounds = Execution(file, list_steps(file), tmp_path / "run")
    monkeypatch.setattr(rounds, "_start", lambda step, arguments: record_stage(tmp_path / "run" / step.name))
    return rounds


def test_episodes_of_the_expert_and_of_a_policy_behind_them(tmp_path, monkeypatch):
    """An untrained policy pushes nothing to its place, so its two episodes last 30 control steps and fail."""
    rounds = build(tmp_path, monkeypatch)
    check_steps(rounds.file, rounds.steps, rounds.run_dir)
    receipts = [rounds.run(step) for step in rounds.steps]
    demos, more = (open_dataset(tmp_path / "run" / step.name / EPISODES) for step in rounds.steps)
    assert (len(demos), len(more)) == (3, 5)
    for number in range(3):
        np.testing.assert_array_equal(more[number].actions, demos[number].actions)
    assert [len(more[number]) for number in (3, 4)] == [30, 30] and more[4].truncated
    assert more[4].observations["state"].shape == (30, 20) and np.abs(more[4].actions).max() <= 1
    successes = open_dataset(tmp_path / "run" / rounds.steps[1].name / SUCCESSES)
    share = receipts[0].result["reward"]
    assert len(successes) == round(3 * share) and receipts[1].result["reward"] == 0
    assert receipts[1].result["rows"] == receipts[0].result["rows"] + 60 and receipts[1].result["problems"] == 2
    records = build_records(list(zip(rounds.steps, receipts)))
    assert [record["weights"] for record in records] == ["", "base"]


def test_a_stage_writes_the_same_bytes_again(tmp_path, monkeypatch):
    stages = {"more": {"kind": "record", "weights": "base", "count": 1}, "demos": STAGES["demos"]}
    one, two = (
        build(tmp_path / name, monkeypatch, **stages) for name in ("one", "two") if not (tmp_path / name).mkdir()
    )
    for rounds in (one, two):
        for step in rounds.steps:
            rounds.run(step)
    for step in one.steps:
        assert (one.run_dir / step.name / EPISODES).read_bytes() == (two.run_dir / step.name / EPISODES).read_bytes()


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"kind": "record", "noise": 0.1}, "set expert=true"),
        ({"kind": "record", "count": 0}, "count"),
        ({"kind": "record", "adds": ["fit"]}, "is a fit stage"),
        ({"kind": "record", "adds": ["nobody"]}, "no earlier stage"),
        ({"kind": "record", "expert": True, "overrides": ["recipe=sft"]}, "no simulator"),
    ],
)
def test_what_no_record_stage_can_be_is_refused(tmp_path, stage, message):
    fit = {"kind": "fit", "overrides": ["trainer.max_epochs=1"]}
    with pytest.raises(ConfigError, match=message):
        file = read_file(tmp_path, fit=fit, bad=stage)
        check_steps(file, list_steps(file), tmp_path)


def test_observations_beside_a_state_vector_are_refused(tmp_path):
    image = {"image": np.zeros((2, 4, 4, 3), np.uint8), "state": np.zeros((2, 3))}
    episode = OfflineEpisode(np.zeros((2, 1), np.float32), image, rewards=np.zeros(2, np.float32))
    with pytest.raises(ConfigError, match="'image', 'state'"):
        merge_recordings(tmp_path / EPISODES, [], [episode])


class Counting:
    """An engine whose chunks are the number of the request in the first, and the control step in the second axis."""

    def __init__(self):
        self.asked = []

    def sample(self, requests, sampling):
        self.asked.append([float(request.observation["state"][0]) for request in requests])
        chunk = np.arange(3)[:, None]
        return [Completion({}, None, None, None, chunk + 10 * row) for row in self.asked[-1]]


def test_a_chunk_is_played_before_the_next_inference():
    """Of chunks of three, two steps are played; environment 1 ends after the first chunk, and stands still."""
    engine, rows = Counting(), [{"state": np.array([float(i)])} for i in range(2)]
    actor = ChunkActor(engine, Sampling(), seeds=[5, 6], execute=2)
    live = np.array([True, True])
    played = [actor(None, rows, live, 0)[0], actor(None, rows, live, 1)[0]]
    assert [each[:, 0].tolist() for each in played] == [[0, 10], [1, 11]]
    assert actor(None, rows, np.array([True, False]), 2)[1][:, 0].tolist() == [0, 0]
    assert engine.asked == [[0, 1], [0]]
