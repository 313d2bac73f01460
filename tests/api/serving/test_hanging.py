"""A server whose policy does not return ends at Ctrl-C and at SIGTERM, in a process of its own."""

import os
import signal
import subprocess
import time

import pytest

from tests.api.serving.served import observation
from tests.quick_python import quick_python
from tests.tiny_recipes import ROOT

PROGRAM = """
import threading
from mmrl.api import serve
from mmrl.api.serving.server import PolicyServer
from mmrl.core.types import Sampling
from tests.api.serving.served import small_policy

policy = small_policy()
def act(*_, **__):
    print("in the policy", flush=True)
    threading.Event().wait()
policy.act = policy.act_groups = act
serve._build_policy_server = lambda request: PolicyServer(policy, Sampling())
serve.serve(["nowhere", "port=0"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_with_a_call_that_does_not(number, tmp_path):
    connect = pytest.importorskip("websockets.sync.client").connect
    from mmrl.policies.remote.wire import pack

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    server = subprocess.Popen([quick_python(), str(program)], env=environment, **pipes)
    try:
        port = int(server.stdout.readline().split("ws://127.0.0.1:")[1].split()[0])
        with connect(f"ws://127.0.0.1:{port}") as client:
            client.recv()
            client.send(pack(observation()))
            assert server.stdout.readline() == "in the policy\n"
            started = time.monotonic()
            server.send_signal(number)
        _, errors = server.communicate(timeout=60)
        assert server.returncode == 0 and time.monotonic() - started < 30
        assert "a call of the model does not end within 3 s; the server ends without its answer" in errors
    finally:
        server.kill()
