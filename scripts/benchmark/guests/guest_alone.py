"""Decisions per second of a guest in its own Python, without the trainer: run by that Python, which needs no mmrl.

Arguments: the folders of the package sims as JSON, the guest's description as JSON, environments, seconds.
"""

import json
import sys
import time
import types

import numpy as np


def main(folders: str, description: str, num_envs: str, seconds: str) -> None:
    """Print the rate of random actions; ended environments are reset at once with new seeds."""
    package = types.ModuleType("sims")
    package.__path__ = json.loads(folders)
    sys.modules["sims"] = package
    from sims.host.build import build
    from sims.host.vector import GuestVectorEnv

    env, count = GuestVectorEnv(build(json.loads(description)).make_env, int(num_envs)), int(num_envs)
    rng, seeds, done = np.random.default_rng(0), iter(range(10**9)), 0
    env.reset(seed=[next(seeds) for _ in range(count)])
    low, high = env.action_space.low, env.action_space.high
    actions = [rng.uniform(low, high).astype(low.dtype) for _ in range(64)]
    env.step(actions[0])
    start = time.perf_counter()
    while time.perf_counter() < start + float(seconds):
        env.step(actions[done % 64])
        done += 1
        if env.over.any():
            env.reset(seed=[next(seeds) for _ in range(count)], options={"reset_mask": env.over.copy()})
    print(done * count / (time.perf_counter() - start))


if __name__ == "__main__":
    main(*sys.argv[1:])
