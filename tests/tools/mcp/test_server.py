"""MCP servers in processes of their own: schemas, results, faults that are counted, and processes that end."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.base import BadArguments, ToolOutput
from mmrl.tools.chat_parser import HermesParser
from mmrl.tools.mcp.server import CallFailed, McpServer
from tests.rollouts.agent.policies import TOOL, Questions, Steered, build_context, save_checkpoint
from tests.rollouts.agent.test_rollout import Add
from tests.tiny_recipes import free_port

FOLDER = Path(__file__).parent


def broken(kind, mark="", **options):
    return McpServer(command=f"{sys.executable} {FOLDER / 'broken_server.py'} {kind} {mark}", **options)


def find_processes(mark):
    """Ids of the processes with this argument."""
    lines = {file: read(file) for file in Path("/proc").glob("[0-9]*/cmdline")}
    return [file.parent.name for file, line in lines.items() if mark in line.split("\0")]


def read(file):
    try:
        return file.read_text()
    except OSError:
        return ""


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.client.client", None)
    with pytest.raises(ValueError, match=r"needs the package mcp: pip install 'mmrl-lightning\[mcp\]'"):
        McpServer(command="python server.py")


@pytest.mark.parametrize(
    "options, reason",
    [
        ({}, "either command or url"),
        ({"command": "python", "url": "http://a"}, "either command or url"),
        ({"command": "no-such-program x"}, "command='no-such-program x': there is no such program"),
        ({"url": "127.0.0.1:8000"}, "must begin with http://"),
        ({"url": "http://a.example", "timeout_s": 0}, r"rollout\.servers\.timeout_s must be > 0"),
    ],
)
def test_arguments_are_checked(options, reason):
    with pytest.raises(ValueError, match=reason):
        McpServer(**options)


def test_a_server_of_the_official_package():
    pytest.importorskip("mcp")
    server = McpServer(command=f"{sys.executable} {FOLDER / 'arithmetic_server.py'}")
    tools = server.list_tools()
    schema = tools["add"].schema["function"]
    assert set(tools) == {"add", "divide", "red", "end", "process"} and schema["description"] == "Add two numbers."
    assert schema["parameters"]["required"] == ["a", "b"] and tools["add"].parameters == {"a": int, "b": int}
    assert tools["add"].run(a=2, b=40) == ToolOutput("42")
    image = tools["red"].run(size=4).images[0]
    assert np.array_equal(image, np.broadcast_to(np.array([255, 0, 0], np.uint8), (4, 4, 3)))
    with pytest.raises(CallFailed, match="b is zero"):
        tools["divide"].run(a=1, b=0)
    with pytest.raises(BadArguments, match="b is missing"):
        tools["add"].check({"a": 1})
    with pytest.raises(BadArguments, match="c is no argument"):
        tools["add"].check({"a": 1, "b": 2, "c": 3})
    first = int(tools["process"].run().text)
    with pytest.raises(Exception, match="closed"):
        tools["end"].run(how="die")
    second = int(tools["process"].run().text)
    assert second != first and is_over(first)
    server.close()
    assert is_over(second, 0.5) and tools["add"].run(a=1, b=1) == ToolOutput("2")  # it is started again
    third = int(tools["process"].run().text)
    del server, tools, schema
    gc.collect()
    assert is_over(third, 0.5)
    other = McpServer(command=f"{sys.executable} {FOLDER / 'arithmetic_server.py'}", tools=["add", "multiply"])
    with pytest.raises(ValueError, match="it has no tool multiply; there are: add, divide, red, end, process"):
        other.list_tools()


def is_over(pid, seconds=10):
    """Whether a process has ended, or does within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_server_over_http():
    pytest.importorskip("mcp")
    port = free_port()
    process = subprocess.Popen([sys.executable, FOLDER / "arithmetic_server.py", str(port)], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        for _ in range(100):
            try:
                tools = McpServer(url=url, start_s=2).list_tools()
                break
            except ValueError:
                time.sleep(0.2)
        assert tools["add"].run(a=1, b=2) == ToolOutput("3")
        with pytest.raises(CallFailed, match="b is zero"):
            tools["divide"].run(a=1, b=0)
    finally:
        process.kill()
        process.wait()
    for _ in range(2):  # it does not come back, which is a fault each time
        with pytest.raises(Exception, match=r"connection|disconnected|closed|answered"):
            tools["add"].run(a=1, b=2)


@pytest.mark.parametrize("kind", ["start", "silent"])
def test_what_is_no_server_is_refused_by_its_command(kind, tmp_path):
    pytest.importorskip("mcp")
    started = time.monotonic()
    with pytest.raises(ValueError, match=rf"broken_server.py {kind} .*: no MCP server answered, in at most 1 s"):
        broken(kind, str(tmp_path), start_s=1.0).list_tools()
    assert time.monotonic() - started < 15
    assert not find_processes(str(tmp_path))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return TextPolicy(path=str(save_checkpoint(tmp_path_factory.mktemp("mcp")))).eval()


def play(policy, monkeypatch, rows=12, **options):
    rollout = ToolUse(parser=HermesParser(), max_turns=3, **options)
    monkeypatch.setattr(rollout, "schemas", [TOOL])
    ctx, task = build_context(policy, Steered(0.7)), Questions()
    episodes = rollout.collect([(slot, task[slot]) for slot in range(rows)], ctx)
    rollout.close()
    return episodes


def test_episodes_with_tools_of_a_server_are_those_with_the_same_tools_here(policy, monkeypatch):
    """A server that dies at some calls: these episodes are counted errors, and the others are equal, bit by bit."""
    pytest.importorskip("mcp")
    expected = play(policy, monkeypatch, 40, tools={"add": Add()})
    episodes = play(policy, monkeypatch, 40, servers={"main": broken("leave")}, max_concurrent=1)
    errors = 0
    for one, other in zip(episodes, expected):
        if any(call[1]["a"] == 7 for call in other.info["calls"] if call[0] == "add" and call[2] == "ok"):
            assert one.ended == "error" and "tool 'add' raised: MCPError: Connection closed" in one.info["error"]
            assert one.info["counts"]["tools/add/raised"] == 1
            errors += 1
            continue
        [row], [same] = ([turn.completion for turn in each.turns] for each in (one, other))
        assert torch.equal(row.action, same.action) and torch.equal(row.action_mask, same.action_mask)
        assert one.info["calls"] == other.info["calls"] and one.ended == other.ended
    assert 1 < errors < 20


@pytest.mark.parametrize(
    "kind, reason", [("hang", "TimeoutError"), ("call", "TimeoutError"), ("shape", "valid"), ("audio", "'audio'")]
)
def test_faults_of_a_server_are_counted_and_the_run_goes_on(policy, monkeypatch, kind, reason, tmp_path):
    pytest.importorskip("mcp")
    episodes = play(policy, monkeypatch, 6, servers={"main": broken(kind, str(tmp_path), timeout_s=0.5)})
    failed = [episode for episode in episodes if episode.ended == "error"]
    assert failed and all(reason in episode.info["error"] for episode in failed)
    assert sum(episode.info["counts"].get("tools/add/raised", 0) for episode in episodes) == len(failed)
    assert not find_processes(str(tmp_path))
