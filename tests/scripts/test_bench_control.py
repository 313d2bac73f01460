"""Every algorithm of the control benchmark runs on our side and says what it measured."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("algorithm", "env", "steps"),
    [("dqn", "CartPole-v1", 1280), ("ppo", "CartPole-v1", 1024), ("sac", "Pendulum-v1", 128)],
)
def test_one_line(algorithm, env, steps):
    words = ["--algorithm", algorithm, "--env", env, "--steps", str(steps)]
    script = str(ROOT / "scripts" / "bench_control.py")
    done = subprocess.run([quick_python(), script, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    reported = json.loads(line)
    assert (reported["algorithm"], reported["env"], reported["env_steps"], reported["threads"]) == (
        algorithm,
        env,
        steps,
        1,
    )
    for name in ("env_steps_per_second", "seconds", "cpu_seconds"):
        assert reported[name] > 0
    assert len(reported["rounds"]) == 1 and {"time/rollout", "time/learn"} <= reported["phases"].keys()
    assert reported["numbers"]["hidden"] and "torch" in reported["versions"] and "ratio" not in reported
    assert "final_return" in reported


def test_an_environment_without_numbers_is_refused():
    script = str(ROOT / "scripts" / "bench_control.py")
    done = subprocess.run(
        [quick_python(), script, "--algorithm", "sac", "--env", "CartPole-v1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and "sac has numbers for ['HalfCheetah-v5', 'Pendulum-v1']" in done.stderr
