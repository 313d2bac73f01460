"""Environments of verifiers play against the endpoint: in a process, with the package or with what stands in for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.agent.rollout import AgentRollout
from mmrl.rollouts.agent.verifiers import agent
from tests.policies.text.oracle import TINY
from tests.rollouts.agent.policies import Questions, Steered, build_context
from tests.rollouts.agent.verifiers.own_agents import PYTHON

FOLDER = Path(__file__).parent


def write_rows(python, taskset, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder))
    done = subprocess.run([python, agent.HOST, taskset], capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def play(agent_name, rows, sampling):
    """Play an episode of each row."""
    policy = TextPolicy(config=dict(TINY)).eval()
    rollout = AgentRollout(f"tests.rollouts.agent.verifiers.own_agents:{agent_name}", max_failed=1.0)
    ctx = build_context(policy, Steered(0.0), sampling=sampling)
    prompts = [Prompt(f"row/{n}", Questions()[0].messages, info=row) for n, row in enumerate(rows)]
    try:
        return rollout.collect(list(enumerate(prompts)), ctx)
    finally:
        for host in agent.VerifiersHost.running.values():
            host.close()
        assert all(host.is_over for host in agent.VerifiersHost.running.values())


def test_rewards_are_those_of_the_environment_and_failures_are_counted(monkeypatch):
    rows = write_rows(sys.executable, "lengths", FOLDER / "stand_in", monkeypatch)
    assert [row["question"] for row in rows] == [f"task {number}" for number in range(5)]
    assert rows[2] == {"question": "task 2", "answer": rows[2]["answer"], "number": 2}
    episodes = play("lengths", [*rows[:4], *rows[:4]], Sampling(max_tokens=5))
    for number, episode in enumerate(episodes):
        if number % 4 == 3:
            assert episode.ended == "error" and "taskset 'lengths': TaskError: no answer" in episode.info["error"]
            continue
        length = float(len(episode.turns[0].completion.output))
        assert episode.info["agent"] == {"reward": length, "length": length, "turns": 1.0}
        assert episode.info["turns"] == 1
    # a process that ends takes its episodes with it, and the next one has another
    [lost] = play("lengths", rows[4:], Sampling(max_tokens=5))
    assert lost.ended == "error" and "the process of the environment ended with status 3" in lost.info["error"]
    [again] = play("lengths", rows[:1], Sampling(max_tokens=5))
    assert again.ended != "error"


@pytest.mark.skipif(PYTHON is None, reason="MMRL_VERIFIERS_PYTHON names no Python with verifiers")
@pytest.mark.slow
def test_a_taskset_of_the_package_runs_unchanged(monkeypatch):
    rows = write_rows(PYTHON, "first_letters", FOLDER, monkeypatch)
    episodes = play("first_letters", rows, Sampling(max_tokens=3))
    for row, episode in zip(rows, episodes):
        reply = episode.turns[0].completion.output.strip()
        assert episode.info["agent"]["reward"] == float(len(reply)) + int(row["number"])


def test_a_python_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"VerifiersAgent\('sums'\): no program '/no/python'"):
        agent.VerifiersAgent("sums", "/no/python")
