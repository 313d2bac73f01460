import copy
import time

import numpy as np
import pytest
import torch

pytest.importorskip("msgpack")
pytest.importorskip("websockets")

from mmrl.__main__ import main
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.processor import Gripper, Processor
from mmrl.policies.remote.policy import RemotePolicy
from tests.api.serving.served import observation, serve, small_policy


@pytest.fixture(scope="module")
def policy():
    return small_policy()


@pytest.fixture(scope="module")
def running(policy):
    with serve(policy, sampling=Sampling(decode="argmax")) as running:
        yield running


def remote(running, **options):
    return RemotePolicy(getattr(running, "url", running), **{"action_dims": 3, "chunk": 4, **options})


def sample(policy, raws, sampling=None):
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests = [Request(raw, seed=2**63 + i) for i, raw in enumerate(raws)]
    return [completion.output for completion in engine.sample(requests, sampling or Sampling())]


@pytest.mark.parametrize("decode", ["sample", "argmax", "mean"])
def test_one_observation_has_the_local_action_bit_for_bit(running, policy, decode):
    sampling = Sampling(decode=decode)
    (served,), (here,) = (sample(each, [observation(3)], sampling) for each in (remote(running), policy))
    assert served.dtype == here.dtype and np.array_equal(served, here)


@pytest.mark.parametrize("connections", [1, 3, 16])
def test_many_observations_have_the_local_actions_in_order(running, policy, connections):
    raws = [observation(i) for i in range(8)]
    served = sample(remote(running, connections=connections), raws)
    assert np.array_equal(served, sample(policy, raws))
    assert not np.array_equal(served[0], served[1])


def test_names_slices_and_the_gripper_are_converted(policy):
    names = {"image": "observation/image", "instruction": "prompt", "proprio": "observation/state"}
    policy = copy.deepcopy(policy)
    policy.processor = Processor(names={there: here for here, there in names.items()})
    with serve(policy) as running:
        processor = Processor(names={"state": "proprio"}, gripper=Gripper(dim=1, closed=1.0, open=0.0))
        converted = remote(running, names=names, processor=processor, action_dims=2, action_slice=[1, 3], chunk=2)
        raw = observation(4)
        given = {"image": raw["image"], "instruction": raw["instruction"], "state": raw["proprio"], "other": object()}
        (served,) = sample(converted, [given])
    (here,) = sample(policy, [{names[name]: value for name, value in raw.items()}])
    assert served.shape == (2, 2) and np.array_equal(served[:, 0], here[:2, 1])
    assert np.allclose(served[:, 1], (1 - here[:2, 2]) / 2)  # 1 open, -1 closed to 0 open, 1 closed


@pytest.mark.parametrize(
    "options, words",
    [
        ({"action_dims": 7}, "actions have 3 dimensions, here 7"),
        ({"chunk": 9}, "gives 4 control steps, here 9"),
        ({"names": {"image": "observation/image"}}, r"needs observation \['image', 'instruction', 'proprio'\]"),
        ({"action_slice": [1, 4]}, r"actions are \[4, 3\], which does not give 4 control steps of 3 numbers"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(running, options, words):
    with pytest.raises(ConfigError, match=words):
        sample(remote(running, **options), [observation()])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"url": "http://x"}, "must be ws://"),
        ({"action_slice": [3, 1]}, "action_slice"),
        ({"action_slice": [0, 7]}, "action_dims=3"),
        ({"connections": 0}, "connections"),
        ({"token_file": "/nowhere"}, "token_file=/nowhere: cannot be read"),
    ],
)
def test_arguments_that_cannot_be_used(options, words):
    with pytest.raises(ValueError, match=words):
        RemotePolicy(**{"url": "ws://127.0.0.1:1", "action_dims": 3, **options})


def test_the_servers_error_is_one_line(running):
    with pytest.raises(RuntimeError, match="answered with an error: ValueError: observation 'image' must be"):
        sample(remote(running), [{**observation(), "image": np.zeros((4, 4), np.uint8)}])


def test_the_token_is_sent(policy, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("secret\n")
    with serve(policy, token="secret") as running:
        assert len(sample(remote(running, token_file=str(file)), [observation()])) == 1
        with pytest.raises(ConfigError, match="refuses the token"):
            sample(remote(running), [observation()])
        monkeypatch.setenv("MMRL_SERVE_TOKEN", "secret")
        assert len(sample(remote(running), [observation()])) == 1


def test_a_server_that_comes_back_goes_on(policy, capfd):
    with serve(policy) as first:
        asking, port = remote(first, reconnect_s=20), first.port
        before = sample(asking, [observation(1), observation(2)])
    with serve(policy, port=port):
        assert np.array_equal(sample(asking, [observation(1), observation(2)]), before)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and "lost the server" in lines[0]


def test_another_policy_that_comes_back_is_refused(policy):
    with serve(policy) as first:
        asking, port = remote(first, reconnect_s=20), first.port
        sample(asking, [observation()])
    with serve(policy, port=port, sampling=Sampling(decode="mean")), pytest.raises(ConfigError, match="another policy"):
        sample(asking, [observation()])


def test_a_server_that_stays_away_is_an_error_after_the_limit(capfd):
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no server for 0.6 s .*mmrl serve RUN_FOLDER"):
        sample(remote("ws://127.0.0.1:1", reconnect_s=0.6), [observation()])
    assert 0.5 < time.monotonic() - start < 10
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_copies_have_connections_of_their_own(running):
    first = remote(running)
    before = sample(first, [observation()])
    second = copy.deepcopy(first)
    assert np.array_equal(sample(second, [observation()]), before)
    assert second.server._open[0] is not first.server._open[0]
    assert first.contract()["server"]["action.chunk"] == 4 and list(first.parameters()) == []


def test_it_is_neither_trained_nor_saved(running, tmp_path, monkeypatch, capsys):
    with pytest.raises(NotImplementedError, match="cannot be trained"):
        remote(running)(Batch({"action": torch.zeros(1, 1)}))
    with pytest.raises(NotImplementedError, match="cannot be saved"):
        remote(running).save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["task=sim", "sim=reach", "rollout=env", "evaluation=sim", "policy=remote", "trainer.logger=false"]
    assert main(["fit", *words]) == 2
    assert "RemotePolicy) cannot be trained: its weights are at policy.url" in capsys.readouterr().err
