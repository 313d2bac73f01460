"""A vision-language-action policy acts in the simulator of its run.

    python examples/vla_in_simulator.py RUN_FOLDER [EPISODES]

RUN_FOLDER is a run in a simulator, such as runs/demo of `make demo`. Seconds; prints the instruction and the outcome of
each episode, and the success rate, which is that of `mmrl evaluate RUN_FOLDER` up to chance.
"""

import sys

import mmrl

if __name__ == "__main__":
    folder, episodes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    policy = mmrl.load_policy(folder)
    env = policy.make_env()
    successes = 0.0
    for seed in range(1, 2 * episodes, 2):  # odd seeds are initial states that training never has
        observation, info = env.reset(seed=seed)
        instruction, over = observation.get("instruction", ""), False
        while not over:
            action = policy.act(observation)  # float [H, A]: a chunk of control steps, in the simulator's units
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        successes += info["scores"]["success"]
        print(f"seed {seed}: {instruction!r} {'done' if info['scores']['success'] else 'failed'}")
    print(f"{successes:.0f} of {episodes} episodes succeeded")
