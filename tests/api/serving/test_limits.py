"""What a client may send is bounded by what the policy reads, and what a server says is read or refused."""

import threading
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

pytest.importorskip("msgpack")
pytest.importorskip("websockets")
import msgpack
from websockets.sync.client import connect

from mmrl.api.serving.limits import ObservationLimits
from mmrl.core.errors import ConfigError
from mmrl.policies.remote.metadata import read_metadata
from mmrl.policies.remote.policy import RemotePolicy
from mmrl.policies.remote.wire import WireError, pack, unpack
from tests.api.serving.served import observation, serve, small_policy

LIMITS = ObservationLimits(characters=1000, image_size=64)


@pytest.fixture(scope="module")
def running():
    with serve(small_policy(), contract={"sim": "reach", "image_size": 64}) as running:
        yield running


REFUSED = {
    "text of 1 MB": ({"instruction": "a " * 2**19}, "observation 'instruction' has 1048576 characters; at most 1000"),
    "text in a list": ({"words": ["b" * 1001]}, "observation 'words' has 1001 characters"),
    "text in maps of lists": ({"a": {"b": [["c" * 1001]]}}, "observation 'a' has 1002 characters"),
    "large image": ({"image": np.zeros((1000, 1000, 3), np.uint8)}, "must be an image of 64 x 64 pixels"),
    "small image": ({"image": np.zeros((63, 64, 3), np.uint8)}, "must be an image of 64 x 64 pixels"),
    "long image": ({"image": np.zeros((1, 100_000, 3), np.uint8)}, "must be an image of 64 x 64 pixels"),
    "NaN in proprio": ({"proprio": np.array([0, 0, np.nan, 0, 0], np.float32)}, "numbers that are not finite"),
    "infinite proprio": ({"proprio": np.full(5, np.inf)}, "'proprio' has numbers that are not finite"),
    "NaN in a list": ({"proprio": [0.0, 0.0, 0.0, 0.0, float("nan")]}, "'proprio' has numbers that are not finite"),
    "NaN alone": ({"proprio": float("nan")}, "'proprio' has numbers that are not finite"),
    "large vector": ({"proprio": np.zeros(1_000_001, np.uint8)}, "at most 1000000 numbers are read"),
    "large array of pixels as floats": ({"image": np.zeros((1000, 1001, 3), np.float16)}, "at most 1000000 numbers"),
    "many observations": ({str(i): 0 for i in range(99)}, "at most 64"),
    "nested lists": ({"x": [[[0] * 1000] * 1000] * 2}, "more than 10000 entries"),
    "a list of arrays": ({"x": [np.zeros(999)] * 11}, "more than 10000 entries"),
    "texts of a list": ({"instruction": ["a" * 999] * 1000}, "observation 'instruction' has 1998 characters"),
    "names of a map": ({"x": {"k" * 600: {"k" * 600: 0}}}, "observation 'x' has 1200 characters"),
    "1e300": ({"proprio": np.full(5, 1e300)}, "'proprio' has numbers beyond 1e\\+12"),
    "1e38 in 32 bits": ({"proprio": np.full(5, -1e38, np.float32)}, "'proprio' has numbers beyond"),
    "2**62": ({"proprio": np.full(5, 2**62)}, "'proprio' has numbers beyond"),
    "2**63 of 64 bits": ({"proprio": np.full(5, 2**63, np.uint64)}, "'proprio' has numbers beyond"),
    "2**62 in a list": ({"proprio": [2**62] * 5}, "'proprio' has numbers beyond"),
    "1e300 in a list": ({"proprio": [1e300] * 5}, "'proprio' has numbers beyond"),
    "bytes": ({"image": b"\xff\xd8"}, "observation 'image' is a bytes; send numbers"),
    "a time of msgpack": ({"at": [msgpack.Timestamp(1, 0)]}, "observation 'at' is a Timestamp; send numbers"),
    "bytes in a map": ({"x": {b"k": 1}}, "observation 'x' is a bytes"),
    "10**400": ({"n": 10**400}, "'n' has numbers beyond"),
    "-10**400 in a map": ({"n": {"m": [-(10**400)]}}, "'n' has numbers beyond"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_policy_cannot_read_is_refused_by_name(name):
    parts, words = REFUSED[name]
    with pytest.raises(WireError, match=words):
        LIMITS.check({**observation(), **parts})


def test_what_it_reads_passes():
    LIMITS.check(observation())
    LIMITS.check({**observation(), "image": np.zeros((64, 64, 6), np.uint8), "instruction": "x" * 1000, "n": 3})
    LIMITS.check({"image": np.zeros((3, 64, 64), np.uint8)})
    ObservationLimits(scaled=frozenset({"wrist"}), image_size=64).check({"wrist": np.zeros((480, 640, 3), np.uint8)})
    with pytest.raises(WireError, match="at most 2048 pixels"):
        ObservationLimits(scaled=frozenset({"wrist"}), image_size=64).check({"wrist": np.zeros((4000, 4, 3), np.uint8)})


def test_the_limits_are_those_of_policy_and_simulator():
    policy = small_policy()
    assert ObservationLimits.of(policy, {"image_size": 64}) == ObservationLimits(1000, 64)
    assert ObservationLimits.of(policy, {}) == ObservationLimits(1000, None)
    policy.scales_images = True
    assert ObservationLimits.of(policy, {"image_size": 64}).image_size is None


def ask(url, raw):
    with connect(url) as connection:
        connection.recv()
        connection.send(pack(raw))
        return connection.recv(timeout=20)


def test_absurd_messages_cost_their_senders_alone(running):
    """While clients send what is refused, another one is answered in its usual time, and there is no traceback."""
    stop, errors = threading.Event(), []

    def send_absurd():
        while not stop.is_set():
            for name in ("text of 1 MB", "large image", "NaN in proprio"):
                errors.append(ask(running.url, {**observation(), **REFUSED[name][0]}))

    threads = [threading.Thread(target=send_absurd) for _ in range(3)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    for call in range(5):
        start = time.monotonic()
        assert unpack(ask(running.url, observation(call)))["actions"].shape == (4, 3)
        slowest = max(slowest, time.monotonic() - start)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert slowest < 10 and len(errors) >= 3
    assert all(isinstance(error, str) and error.startswith("WireError: observation") for error in errors)
    assert not any("Traceback" in line for line in running.lines)


def test_the_longest_request_that_is_read_costs_little(running):
    """In seconds of the policy's thread: other clients wait for so long at most."""
    largest = {
        "instruction": ["\U0001f600" * 100] * 10,
        "unused": [[-999_999_999_999] * 100] * 90,
        **{f"array{number}": np.full(10**6, 255, np.uint8) for number in range(8)},
    }
    start = time.monotonic()
    assert unpack(ask(running.url, {**observation(), **largest}))["actions"].shape == (4, 3)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"image": "x"}, "'image' must be uint8"),
        ({"image": 3}, "'image' must be uint8"),
        ({"image": ["x"]}, "'image' must be uint8"),
        ({"image": {"a": 1}}, "'image' must be uint8"),
        ({"image": np.zeros((4, 64, 64, 3), np.uint8)}, "'image' must be uint8"),
        ({"proprio": "x"}, "'proprio' must be 5 numbers"),
        ({"proprio": {"a": 1}}, "'proprio' must be 5 numbers"),
        ({"proprio": [[1], [2, 3]]}, "'proprio' must be 5 numbers"),
        ({"proprio": np.zeros(4)}, "'proprio' has shape"),
    ],
    ids=str,
)
def test_observations_of_another_form_are_refused_by_name(parts, words):
    with pytest.raises(ValueError, match=words):
        small_policy().encode({**observation(), **parts})


def test_a_request_that_the_policy_does_not_answer_is_an_error_of_its_client(monkeypatch):
    monkeypatch.setattr("mmrl.api.serving.server.CALL_S", 0.3)
    policy, released = small_policy(), threading.Event()
    act = policy.act_groups

    def slow(observed, owner, sampling, noise):
        if int(observed["proprio"][0, 0]) == 7:
            assert released.wait(60)
        return act(observed, owner, sampling, noise)

    policy.act_groups = slow
    with serve(policy) as running:
        assert "not answered within 0.3 s" in ask(running.url, {**observation(), "proprio": np.full(5, 7.0)})
        monkeypatch.setattr("mmrl.api.serving.server.CALL_S", 60.0)
        released.set()
        assert unpack(ask(running.url, observation()))["actions"].shape == (4, 3)


def test_while_one_request_holds_the_policy_the_others_have_their_error_at_once(monkeypatch):
    monkeypatch.setattr("mmrl.api.serving.server.CALL_S", 0.5)
    policy, released, calls = small_policy(), threading.Event(), []
    act = policy.act_groups

    def slow(observed, owner, sampling, noise):
        calls.append(observed["proprio"][:, 0].tolist())
        if calls[-1] == [7.0]:
            assert released.wait(60)
        return act(observed, owner, sampling, noise)

    policy.act_groups = slow
    late = {**observation(), "proprio": np.full(5, 8.0)}
    with serve(policy) as running:
        health = running.url.replace("ws", "http") + "/healthz"
        asks = [threading.Thread(target=ask, args=(running.url, {**late, "proprio": np.full(5, 7.0)}))]
        asks[0].start()
        while not calls:
            time.sleep(0.01)
        assert "not answered within 0.5 s" in ask(running.url, late)  # it came before the limit, and is not sampled
        began = time.monotonic()
        assert "the policy is busy with an earlier request for more than 0.5 s" in ask(running.url, observation())
        assert time.monotonic() - began < 10
        with pytest.raises(HTTPError, match="503"):
            urlopen(health, timeout=20)
        monkeypatch.setattr("mmrl.api.serving.server.CALL_S", 60.0)
        released.set()
        assert unpack(ask(running.url, observation(3)))["actions"].shape == (4, 3)
        assert urlopen(health, timeout=20).status == 200
        asks[0].join(20)
    assert [7.0] in calls and not any(8.0 in call for call in calls)


def test_an_error_of_the_program_has_one_traceback(monkeypatch):
    policy = small_policy()

    def fail(*_):
        return {}["x"]

    policy.act_groups = fail
    with serve(policy) as running:
        for _ in range(3):
            assert "KeyError" in ask(running.url, observation())
    assert sum("Traceback" in line for line in running.lines) == 1


METADATA = {
    "observations=7": {"observations": 7},
    "observations='x'": {"observations": "x"},
    "observations=\\[1\\]": {"observations": [1]},
    "observations=\\{": {"observations": {"image": 1}},
    "action='x'": {"action": "x"},
    "action=3": {"action": 3},
    "action.dims='3'": {"action": {"dims": "3"}},
    "action.dims=True": {"action": {"dims": True}},
    "action.dims=-1": {"action": {"dims": -1}},
    "action.dims=3.0": {"action": {"dims": 3.0}},
    "action.chunk=\\[4\\]": {"action": {"chunk": [4]}},
    "action.chunk=0": {"action": {"chunk": 0}},
}


@pytest.mark.parametrize("words", METADATA)
def test_metadata_of_another_form_is_refused_by_name(words):
    with pytest.raises(ConfigError, match=f"^policy.url=ws://x: the server's metadata has {words}"):
        read_metadata(METADATA[words], "policy.url=ws://x")


def test_metadata_that_says_nothing_is_read():
    for metadata in ({}, {"observations": None, "action": None}, {"action": {"dims": None}}, {"other": 7}):
        assert read_metadata(metadata, "policy.url=ws://x") == read_metadata({}, "")
    stated = read_metadata({"observations": ["image"], "action": {"dims": 3, "chunk": 4}}, "")
    assert (stated.observations, stated.dims, stated.chunk) == (("image",), 3, 4)


@pytest.mark.parametrize(
    "actions, words",
    [
        (np.full((4, 3), 1e38, np.float32), "go up to 1e\\+38"),
        (np.full((4, 3), -1e38), "go up to 1e\\+38"),
        (np.full((4, 3), 1e300), "go up to 1e\\+300"),
        (np.full((4, 3), 2**62), "go up to 4.6"),
        (np.full((4, 3), -(2**63)), "go up to 9.2"),
        (np.full((4, 3), 2**64 - 1, np.uint64), "go up to 1.8"),
        (np.ones((4, 3), bool), "of type bool"),
        (np.full((4, 3), np.nan), "not finite"),
        (np.full((4, 3), np.inf), "not finite"),
    ],
)
def test_actions_that_no_robot_has_are_refused(actions, words):
    policy = RemotePolicy("ws://127.0.0.1:1", action_dims=3, chunk=4)
    with pytest.raises(ConfigError, match=f"^policy.url=ws://127.0.0.1:1: the answer's actions .*{words}"):
        policy._read({"actions": actions})
    assert policy._read({"actions": np.full((4, 3), 0.5)}).tolist() == [[0.5] * 3] * 4
