"""SAC with equal hyperparameters on both sides, one update per decision; ours alternate every `horizon`."""

from __future__ import annotations

from typing import Any

_DEFAULTS = {
    "horizon": 64,
    "rows": 256,  # of a batch
    "lr": 3e-4,
    "discount": 0.99,
    "tau": 0.005,
    "learning_starts": 100,
    "capacity": 1_000_000,
    "hidden": [256, 256],
}
NUMBERS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": _DEFAULTS,
    "HalfCheetah-v5": {**_DEFAULTS, "learning_starts": 10_000},
}
"""Stable-Baselines3's own defaults, and for HalfCheetah `learning_starts` of its tuned settings."""


def words(env: str, numbers: dict[str, Any], steps: int) -> list[str]:
    return [
        "recipe=sac",
        *replay_words(env, numbers, steps),
        f"model.models.critic.hidden={numbers['hidden']}",
        f"model.phases.polyak_update.tau={numbers['tau']}",
        *(f"model.phases.{phase}.optimizer.lr={numbers['lr']}" for phase in ("critic", "actor")),
    ]


def peer(env: str, numbers: dict[str, Any], seed: int) -> Any:
    from stable_baselines3 import SAC

    return SAC("MlpPolicy", **replay_arguments(env, numbers, seed), tau=numbers["tau"])


def replay_words(env: str, numbers: dict[str, Any], steps: int) -> list[str]:
    """Words of `mmrl fit` that methods with a replay buffer have in common."""
    return [
        f"sim.id={env}",
        "rollout.num_envs=1",
        f"rollout.horizon={numbers['horizon']}",
        f"trainer.max_epochs={-(-steps // numbers['horizon'])}",
        f"data.learning_starts={numbers['learning_starts']}",
        f"data.replay.batch_size={numbers['rows']}",
        f"data.replay.gamma={numbers['discount']}",
        f"data.replay.capacity={numbers['capacity']}",
        f"policy.hidden={numbers['hidden']}",
    ]


def replay_arguments(env: str, numbers: dict[str, Any], seed: int) -> dict[str, Any]:
    """Arguments that Stable-Baselines3's classes with a replay buffer have in common, beside the policy."""
    from stable_baselines3.common.env_util import make_vec_env

    return {
        "env": make_vec_env(env, 1, seed=seed, env_kwargs={"disable_env_checker": True}),
        "learning_rate": numbers["lr"],
        "buffer_size": numbers["capacity"],
        "learning_starts": numbers["learning_starts"],
        "batch_size": numbers["rows"],
        "gamma": numbers["discount"],
        "policy_kwargs": {"net_arch": numbers["hidden"]},
        "seed": seed,
        "device": "cpu",
    }
