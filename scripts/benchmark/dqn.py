"""DQN with equal hyperparameters on both sides: `horizon` decisions and then `updates` updates take turns."""

from __future__ import annotations

from typing import Any

from benchmark.sac import replay_arguments, replay_words

NUMBERS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "horizon": 256,
        "updates": 128,
        "rows": 64,  # of a batch
        "lr": 2.3e-3,
        "discount": 0.99,
        "learning_starts": 1024,
        "capacity": 100_000,
        "hidden": [256, 256],
        "gradient_norm": 10.0,
        "exploration": 0.16,  # share of the run in which epsilon falls from 1 to `epsilon`
        "epsilon": 0.04,
    }
}
"""Tuned settings of rl-baselines3-zoo; learning starts after whole iterations."""


def words(env: str, numbers: dict[str, Any], steps: int) -> list[str]:
    return [
        "recipe=dqn",
        *replay_words(env, numbers, steps),
        f"data.gradient_steps={numbers['updates']}",
        f"data.sampling.temperature.end={numbers['epsilon']}",
        f"data.sampling.temperature.iterations={round(numbers['exploration'] * steps / numbers['horizon'])}",
        f"model.phases.q.max_grad_norm={numbers['gradient_norm']}",
        f"model.phases.q.optimizer.lr={numbers['lr']}",
        f"model.phases.polyak_update.every={numbers['updates']}",  # as often as the peer's, which copies while it plays
    ]


def peer(env: str, numbers: dict[str, Any], seed: int) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy",
        **replay_arguments(env, numbers, seed),
        train_freq=numbers["horizon"],
        gradient_steps=numbers["updates"],
        target_update_interval=numbers["horizon"],
        exploration_fraction=numbers["exploration"],
        exploration_final_eps=numbers["epsilon"],
        max_grad_norm=numbers["gradient_norm"],
    )
