import os
import signal
import subprocess
from pathlib import Path

import pytest

import mmrl
from mmrl.api.serve import parse
from mmrl.commands.completion import complete
from mmrl.commands.help.usage import USAGES
from mmrl.commands.options import SERVE_OPTIONS
from mmrl.core.errors import ConfigError
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET

ROOT = Path(__file__).parents[3]


def test_options_have_usages_and_completions():
    assert [name for name in SERVE_OPTIONS if f"\n  {name}=" not in USAGES["serve"]] == []
    assert {f"{name}=" for name in SERVE_OPTIONS} <= set(complete("mmrl serve runs/x "))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "give one run folder"),
        (["a", "b"], "give one run folder"),
        (["a", "prot=5"], "give one run folder"),
        (["a", "port=70000"], "at most 65535"),
        (["a", "port=-1"], "at least 0"),
        (["a", "max_batch=0"], "at least 1"),
        (["a", "token_file=/nowhere"], "cannot be read"),
        (["a", "token_file=/dev/zero"], "a device"),
        (["a", "host=0.0.0.0"], "a token is needed"),
        (["a", "host=example.org"], "a token is needed"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, words, monkeypatch):
    monkeypatch.delenv("MMRL_SERVE_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=words):
        parse(arguments)


def test_another_address_is_allowed_with_a_token(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    request = parse(["a", "host=0.0.0.0", f"token_file={tmp_path / 'token'}"])
    assert request.token == "secret" and parse(["a", "host=::1"]).token is None


def test_a_pipe_is_no_token_file(tmp_path):
    os.mkfifo(tmp_path / "token")
    with pytest.raises(ConfigError, match=r"token_file=.* a pipe"):
        parse(["a", f"token_file={tmp_path / 'token'}"])


def start(folder, port):
    command = [quick_python(), "-P", "-m", "mmrl", "serve", str(folder), f"port={port}"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    line = server.stdout.readline()
    return server, int(line.split("ws://127.0.0.1:")[1].split()[0])


def test_an_evaluation_goes_on_after_the_server_was_killed(tmp_path, monkeypatch, capfd):
    """And has the scores of an evaluation here."""
    pytest.importorskip("msgpack")
    from mmrl.commands.evaluate import evaluate
    from mmrl.policies.remote.connections import Connections

    monkeypatch.chdir(tmp_path)
    keys = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    mmrl.fit("recipe=demo_vla", *QUIET, run_dir="run", **keys)
    server, port = start("run", 0)
    asked, ask = [], Connections.ask

    def kill_before_the_third(self, messages):
        nonlocal server
        asked.append(len(messages))
        if len(asked) == 3:
            server.kill()
            server.wait(20)
            server, _ = start("run", port)
        return ask(self, messages)

    monkeypatch.setattr(Connections, "ask", kill_before_the_third)
    words = ["policy=remote", f"policy.url=ws://127.0.0.1:{port}", "sim=reach", "evaluation.offset=1024"]
    try:
        with pytest.raises(ConfigError, match=r"1 entries differ from ws://\S+; set the sim's options"):
            evaluate([*words, "sim.image_size=32", "count=3", "decode=argmax", "run_dir=other"])
        served = evaluate([*words, "count=3", "decode=argmax", "run_dir=served"])
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    here = evaluate(["run", "count=3", "decode=argmax"])
    assert served["protocol"] == here["protocol"] and len(asked) > 3
    assert served["metrics"]["policy"] == here["metrics"]["last"]
    assert [line for line in capfd.readouterr().err.splitlines() if "lost the server" in line]
