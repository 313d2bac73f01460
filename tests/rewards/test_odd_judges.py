"""Judges over HTTP are asked once before a model is built: one line has the address, the cause and what helps."""

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.data import check_data
from mmrl.core.errors import ConfigError
from mmrl.rewards.function import FunctionReward
from tests.tiny_recipes import QUIET, TEXT

HERE = "tests.rewards.odd_judges"
NOBODY = r"http://127\.0\.0\.1:\d+/v1 did not answer; start the server, or correct its address"
REFUSED = {
    "wrong_path": r"http://127.*/v1/completion answered with status 404 \(no such path\); correct the path, or",
    "wrong_path_by_requests": r"http://127.*/v1/judge answered with status 404 \(no such path\); correct the path",
    "wrong_model": r"status 404 \(The model `gpt-5` does not exist\.\); correct the path, or the name of the model",
    "wrong_format": r"raised KeyError: 'score' .*http://127.*/completions was asked before; compare what it answers",
    "words_in_place_of_a_number": "could not convert string to float: 'very good'.*/words was asked before",
    "no_json": "raised JSONDecodeError: Expecting value.*/html was asked before; compare what it answers",
    "no_json_by_requests": r"JSONDecodeError.*127\.0\.0\.1:\d+ was asked before; compare what it answers",
    "needs_key": r"/key answered with status 401 \(no key\); give the key that the server asks for",
    "busy": "/busy answered with status 429 .*ask less at once, or allow some failures with reward.max_failures",
    "broken": r"/broken answered with status 500 \(out of memory\); look into the server's log",
    "slow": "TimeoutError: timed out.*/slow did not answer; start the server",
    "hangs_up": "RemoteDisconnected.*/close did not answer",
    "dead": f"Connection refused.*{NOBODY}",
    "dead_by_requests": f"Connection.*{NOBODY}",
    "dead_async": r"ConnectionRefusedError.*127\.0\.0\.1:\d+ did not answer; start the server",
    "unknown_host": "gaierror.*judge.invalid:80 did not answer; start the server, or correct its address",
    "gives_text": r"returned '0\.5' \(str\), which is not a finite number",
    "no_address": "raised URLError: <urlopen error unknown url type: localhost>.*localhost:8000/v1 did not answer",
}


class Answers(BaseHTTPRequestHandler):
    """A server with the paths and errors of an OpenAI-compatible judge."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = {"choices": [{"message": {"content": "very good" if self.path == "/words" else "0.5"}}]}
        answers = {"/key": (401, "no key"), "/busy": (429, "wait"), "/broken": (500, "out of memory")}
        if self.path == "/close":
            return self.connection.close()
        if self.path == "/slow":
            time.sleep(0.6)
        if self.path in answers:
            return self.answer(*answers[self.path])
        if self.path == "/html":
            return self.answer(200, "<html>")
        if self.path not in ("/v1/chat/completions", "/words", "/slow"):
            return self.answer(404, "no such path")
        if body.get("model") not in ("judge", None):
            return self.answer(404, f"The model `{body['model']}` does not exist.")
        return self.answer(200, json.dumps(content))

    def answer(self, code: int, text: str) -> None:
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def judge():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused, and nobody else gets the port
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE", f"http://127.0.0.1:{server.server_port}")
        patch.setenv("NOBODY", f"http://127.0.0.1:{closed.getsockname()[1]}")
        yield
    server.shutdown()
    server.server_close()
    closed.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    words = [*TEXT, *QUIET, f"run_dir={tmp_path_factory.mktemp('run')}"]
    return CLI(to_lightning(compose(words)), build=True).datamodule


@pytest.mark.parametrize("name", ["right", "right_async", "right_for_all", "right_by_requests"])
def test_a_judge_that_answers_works(name, data):
    check_data(data, FunctionReward([f"{HERE}:{name}"]))


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_address_cause_and_remedy(name, data):
    with pytest.raises(ConfigError, match=REFUSED[name]) as error:
        check_data(data, FunctionReward([f"{HERE}:{name}"]))
    assert "\n" not in str(error.value) and name in str(error.value)


def test_a_dead_judge_is_refused_where_some_failures_are_allowed(data):
    with pytest.raises(ConfigError, match=f"{NOBODY}.*failed for every completion"):
        check_data(data, FunctionReward([f"{HERE}:dead"], max_failures=8))
