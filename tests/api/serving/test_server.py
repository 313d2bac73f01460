import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("msgpack")
pytest.importorskip("websockets")
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from mmrl.core.rng import derive_seed
from mmrl.core.types import Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.control.recurrent import RecurrentPolicy
from mmrl.policies.remote.wire import SAMPLING, SEED, pack, unpack
from tests.api.serving.hostile import MESSAGES
from tests.api.serving.served import observation, serve, small_policy

DEFAULT = Sampling()


@pytest.fixture(scope="module")
def policy():
    return small_policy()


@pytest.fixture(scope="module")
def running(policy):
    listed = Sampling(stop=[])  # as of a run's config.yaml
    with serve(policy, contract={"sim": "reach"}, sampling=listed) as running:
        yield running


def local(policy, raw, seed, sampling=DEFAULT):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return engine.sample([Request(raw, seed)], sampling)[0].output


def ask(connection, raw):
    connection.send(pack(raw))
    return unpack(connection.recv(timeout=20))


def test_a_client_is_sent_the_contracts_and_the_sizes(running, policy):
    with connect(running.url) as connection:
        metadata = unpack(connection.recv())
    assert metadata["protocol"] == {"name": "mmrl", "version": 1} and metadata["policy"] == policy.contract()
    assert metadata["simulator"] == {"sim": "reach"} and metadata["action"] == {"chunk": 4, "dims": 3}
    assert metadata["observations"] == ["image", "proprio", "instruction"]


def test_the_memory_of_a_policy_goes_to_the_client_and_back():
    """An unrolled loop over the same observations; a request without a memory starts again."""
    policy = RecurrentPolicy(3, 4, memory_size=5, hidden=[6]).eval()
    states = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    with serve(policy, sampling=Sampling(decode="argmax")) as running, connect(running.url) as connection:
        connection.recv()
        memory, answer = np.zeros(10, np.float32), {}
        for state in states:
            answer = ask(connection, {"state": state} | ({"memory": answer["memory"]} if answer else {}))
            output = local(policy, {"state": state, "memory": memory}, 0, Sampling(decode="argmax"))
            memory = output[1:]
            assert answer["actions"].tolist() == [[int(output[0])]]
            assert np.array_equal(answer["memory"], memory) and memory.any()
        again, first = (ask(connection, {"state": states[0]})["memory"] for _ in range(2))
        assert np.array_equal(again, first) and not np.array_equal(first, memory)


def test_served_actions_are_the_local_ones_bit_for_bit(running, policy):
    with connect(running.url) as connection:
        connection.recv()
        for call in range(3):  # without a seed: the draws of call number k
            answer = ask(connection, observation(call))
            expected = local(policy, observation(call), derive_seed("act", 0, call, 0))
            assert answer["actions"].dtype == expected.dtype and np.array_equal(answer["actions"], expected)
            assert answer["server_timing"]["infer_ms"] > 0
            assert ("prev_total_ms" in answer["server_timing"]) == (call > 0)
        for decode in ("sample", "argmax", "mean"):
            request = {**observation(7), SEED: 2**64 - 1, SAMPLING: {"decode": decode, "temperature": 1.5}}
            expected = local(policy, observation(7), 2**64 - 1, Sampling(decode=decode, temperature=1.5))
            assert np.array_equal(ask(connection, request)["actions"], expected)


def test_an_action_does_not_depend_on_the_other_clients(running, policy):
    """16 clients at once, with equal actions as alone, and batches of several rows."""
    answers, rows = {}, []
    barrier = threading.Barrier(16)

    def client(number):
        with connect(running.url) as connection:
            connection.recv()
            barrier.wait()
            for call in range(3):
                answer = ask(connection, observation(100 * number + call))
                answers[number, call] = answer["actions"]
                rows.append(answer["server_timing"]["batch"])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 48 and max(rows) > 1
    for (number, call), actions in answers.items():
        expected = local(policy, observation(100 * number + call), derive_seed("act", 0, call, 0))
        assert np.array_equal(actions, expected)  # bin centres


def test_the_health_check_needs_no_token(policy):
    with serve(policy, token="secret") as running:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/healthz") as answer:
            assert answer.status == 200 and answer.read() == b"OK\n"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{running.port}/")


@pytest.mark.parametrize(
    "value", [None, "Bearer wrong", "Basic secret", "secret", "Bearer", "Api-Key secret2", "Bearer ä"]
)
def test_a_wrong_token_is_refused(policy, value):
    with serve(policy, token="secret") as running:
        headers = {} if value is None else {"Authorization": value}
        with pytest.raises((InvalidStatus, UnicodeEncodeError)) as refused:
            connect(running.url, additional_headers=headers)
        assert getattr(refused.value, "response", None) is None or refused.value.response.status_code == 401


@pytest.mark.parametrize("value", ["Bearer secret", "Api-Key secret", "api-key secret"])
def test_the_right_token_is_taken(policy, value):
    headers = {"Authorization": value}
    with serve(policy, token="secret") as running, connect(running.url, additional_headers=headers) as connection:
        connection.recv()
        assert ask(connection, observation())["actions"].shape == (4, 3)


def test_a_web_page_cannot_connect(running):
    with pytest.raises(InvalidStatus, match="403"):
        connect(running.url, origin="http://example.org")


def test_hostile_messages_are_answered_by_an_error_and_harm_no_other_client(running):
    assert len(MESSAGES) >= 100
    with connect(running.url) as good:
        good.recv()
        before = ask(good, {**observation(1), SEED: 5})["actions"]
        for name, message in MESSAGES.items():
            with connect(running.url) as connection:
                connection.recv()
                connection.send(message)
                error = connection.recv(timeout=20)
                assert isinstance(error, str) and ": " in error and "\n" not in error, name
                with pytest.raises(ConnectionClosedError) as closed:
                    connection.recv(timeout=20)
                assert closed.value.rcvd.code == 1011, name
        assert np.array_equal(ask(good, {**observation(1), SEED: 5})["actions"], before)
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/healthz") as answer:
        assert answer.status == 200


def test_a_message_beyond_the_limit_closes_its_connection_alone(running, monkeypatch):
    monkeypatch.setattr("mmrl.api.serving.server.MAX_MESSAGE", 50_000)
    with serve(small_policy()) as small:
        with connect(small.url) as connection:
            connection.recv()
            connection.send(bytes(60_000))
            with pytest.raises(ConnectionClosedError) as closed:
                connection.recv(timeout=20)
            assert closed.value.rcvd.code == 1009
        with connect(small.url) as connection:
            connection.recv()
            assert ask(connection, observation())["actions"].shape == (4, 3)


def test_a_failure_beside_the_policy_is_answered_too(policy, monkeypatch):
    def fail(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr("mmrl.api.serving.batching.Batcher._sample", fail)
    with serve(policy) as running:
        for _ in range(2):
            with connect(running.url) as connection:
                connection.recv()
                connection.send(pack(observation()))
                assert connection.recv(timeout=20) == "RuntimeError: no memory"
    assert any("Traceback" in line for line in running.lines)


def test_a_bad_request_of_a_batch_has_its_own_error(policy):
    import asyncio

    from mmrl.api.serving.batching import Batcher

    async def ask_three():
        engine = LocalEngine()
        engine.sync(policy, 0)
        batcher = Batcher(engine, 8)
        raws = [observation(1), {"image": 1}, observation(2)]
        asked = [asyncio.ensure_future(batcher.ask(Request(raw, 3), Sampling())) for raw in raws]
        task = asyncio.create_task(batcher.run())
        results = await asyncio.gather(*asked, return_exceptions=True)
        task.cancel()
        batcher.close()
        return results

    first, bad, last = asyncio.run(ask_three())
    assert isinstance(bad, ValueError) and "needs observation" in str(bad)
    assert np.array_equal(first.output, local(policy, observation(1), 3)) and last.rows == 1
