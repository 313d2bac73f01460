"""GRPO on your own reward function: a random language model of 1 M parameters learns to write digits.

    python examples/grpo_own_function.py [key=value ...]

A minute on two CPU cores. The reward, the share of digits among eight characters, rises from 0.1 to 0.7,
and the answers that are printed at the end are nearly all digits.
"""

import sys

import mmrl


def digits(completion: str, answer: str) -> float:
    """The reward of one completion; `answer` is the problem's, which this function does not need."""
    return sum(character.isdigit() for character in completion) / 8


if __name__ == "__main__":
    run = mmrl.fit(
        *sys.argv[1:],
        recipe="grpo",
        task="arithmetic",
        policy="tiny_text",
        reward=digits,
        data={"num_prompts": 32},
        trainer={"max_epochs": 30, "callbacks": {"warm_start": {"stages": None}}},  # begin with random weights
    )
    rewards = [row["rollout/reward"] for row in run.metrics if "rollout/reward" in row]
    print(f"reward of the first iteration {rewards[0]:.2f}, of the last {rewards[-1]:.2f}")
    print("answers to 12+34=:", run.load_policy().generate("12+34=", n=4, temperature=1.0))
