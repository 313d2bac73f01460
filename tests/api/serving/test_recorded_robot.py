"""A policy of recordings alone, of a robot that no simulator here has, is served as any other."""

import json

import numpy as np
import pytest

import mmrl
from mmrl.api.loaded_policy import load_policy
from tests.datasets.episodes import episode, write
from tests.tiny_recipes import QUIET

pytest.importorskip("websockets")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Cloned from a dataset of another program: nothing of mmrl is in it."""
    root = tmp_path_factory.mktemp("robot")
    data = write(root / "data", [episode(4, 0), episode(4, 1)])
    (data / "meta/mmrl.json").unlink()
    small = {"hidden_size": 16, "layers": 1, "heads": 2, "chunk": 2, "proprio_dims": 5}
    names = {"processor": {"names": {"state": "proprio"}}}
    return mmrl.fit(
        *("recipe=bc", *QUIET, "task=offline", "sim=null", "rollout=offline", "curriculum=shuffled"),
        *(f"task.path='{data}'", f"rollout.path='{data}'", "data.evaluation=null"),
        run_dir=root / "run", policy=small | names, data={"num_prompts": 1}, trainer={"max_epochs": 1},
    )  # fmt: skip


def test_it_acts_and_is_served(run, monkeypatch):
    from mmrl.api import serve

    assert json.loads((run.folder / "contract.json").read_text()) == {}
    loaded = load_policy(run)
    frame = {"image": np.zeros((32, 32, 3), np.uint8), "state": np.zeros(5, np.float32), "instruction": "reach"}
    assert loaded.acts and loaded.act(frame).shape == (2, 3)
    served = []

    async def note(server, request):
        served.append(server.metadata)

    monkeypatch.setattr(serve, "_serve", note)
    serve.serve([str(run.folder)])
    assert served[0]["action"] == {"chunk": 2, "dims": 3} and "state" in served[0]["observations"]


def test_a_missing_observation_says_how_to_name_it(run):
    frame = {"image": np.zeros((32, 32, 3), np.uint8), "joints": np.zeros(5, np.float32), "instruction": "reach"}
    with pytest.raises(ValueError, match=r"policy\.processor\.names=\{THEIR_NAME: proprio\}"):
        load_policy(run).act(frame)
