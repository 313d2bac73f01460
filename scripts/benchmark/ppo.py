"""PPO with equal hyperparameters on both sides. We whiten advantages over the iteration, the peer over a minibatch."""

from __future__ import annotations

from typing import Any

_DEFAULTS = {
    "num_envs": 8,
    "horizon": 128,
    "update_epochs": 4,
    "rows": 64,  # of a minibatch
    "lr": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value": 0.5,  # of the squared error
    "entropy": 0.0,
    "gradient_norm": 0.5,
    "hidden": [64, 64],
    "activation": "tanh",
}
NUMBERS: dict[str, dict[str, Any]] = {"CartPole-v1": _DEFAULTS, "HalfCheetah-v5": _DEFAULTS}
"""Stable-Baselines3's own defaults, apart from the numbers of environments, decisions and update epochs."""


def words(env: str, numbers: dict[str, Any], steps: int) -> list[str]:
    per_iteration = numbers["num_envs"] * numbers["horizon"]
    return [
        "recipe=ppo_control",
        f"sim.id={env}",
        f"rollout.num_envs={numbers['num_envs']}",
        f"rollout.horizon={numbers['horizon']}",
        f"data.update_epochs={numbers['update_epochs']}",
        f"data.num_minibatches={per_iteration // numbers['rows']}",
        f"trainer.max_epochs={-(-steps // per_iteration)}",
        f"trainer.gradient_clip_val={numbers['gradient_norm']}",
        f"data.annotators.gae.gamma={numbers['gamma']}",
        f"data.annotators.gae.gae_lambda={numbers['gae_lambda']}",
        f"objective.terms.policy.clip_low={numbers['clip']}",
        f"objective.terms.policy.clip_high={numbers['clip']}",
        f"objective.coefficients.value={2 * numbers['value']}",  # our term is half the squared error
        f"objective.coefficients.entropy={numbers['entropy']}",
        f"policy.hidden={numbers['hidden']}",
        f"policy.activation={numbers['activation']}",
        f"optimizer.lr={numbers['lr']}",
    ]


def peer(env: str, numbers: dict[str, Any], seed: int) -> Any:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from torch import nn

    return PPO(
        "MlpPolicy",
        make_vec_env(env, numbers["num_envs"], seed=seed, env_kwargs={"disable_env_checker": True}),
        n_steps=numbers["horizon"],
        n_epochs=numbers["update_epochs"],
        batch_size=numbers["rows"],
        learning_rate=numbers["lr"],
        gamma=numbers["gamma"],
        gae_lambda=numbers["gae_lambda"],
        clip_range=numbers["clip"],
        vf_coef=numbers["value"],
        ent_coef=numbers["entropy"],
        max_grad_norm=numbers["gradient_norm"],
        policy_kwargs={
            "net_arch": numbers["hidden"],
            "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[numbers["activation"]],
        },
        seed=seed,
        device="cpu",
    )
