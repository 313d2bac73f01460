"""PPO on your own gymnasium environment: steer a point on a line to its goal.

    python examples/ppo_own_gymnasium.py [key=value ...]

Half a minute on two CPU cores. The return of the episode at the end is about -3; that of doing nothing is about -20. An
environment that a package registers is named by its id: sim="CartPole-v1" or sim="my_package:MyEnv-v0".
"""

import sys

import gymnasium
import numpy as np

import mmrl


class Line(gymnasium.Env):
    """Position and goal in [-1, 1]; each of the 30 steps moves by at most 0.2 and costs the distance to the goal."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, 2)
        return np.array([self.position, self.goal], np.float32), {}

    def step(self, action):
        self.position = np.clip(self.position + 0.2 * float(action[0]), -1, 1)
        return np.array([self.position, self.goal], np.float32), -abs(self.position - self.goal), False, False, {}


def make_line() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Line(), max_episode_steps=30)


if __name__ == "__main__":
    run = mmrl.fit(*sys.argv[1:], recipe="ppo_control", sim=make_line, trainer={"max_epochs": 40})
    policy = run.load_policy()
    env = policy.make_env()
    observation, _ = env.reset(seed=1)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, over = total + reward, terminated or truncated
    print(f"return {total:.2f}; position and goal at the end: {observation}")
