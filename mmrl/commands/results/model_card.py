"""Facts of a run for its model card: metadata of the Hub, base model, task, reward and length of training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.utils import HFValidationError, validate_repo_id
from hydra.utils import get_class

from mmrl.policies.text.checkpoint import GGUF, PACKAGE, is_local

Node = Mapping[str, Any]
"""A part of a run's configuration: class_path and init_args."""


def build_metadata(config: Node, pipeline: str | None, transformers: bool) -> dict[str, Any]:
    """Return the metadata at the head of a card, of which every value is one that the Hub takes.

    Args:
        config: the run's configuration.
        pipeline: task of the Hub that the policy's class is for; None for a policy that has none.
        transformers: whether transformers loads the policy.
    """
    name = config.get("recipe") or config.get("method")
    out: dict[str, Any] = {"library_name": "transformers" if transformers else "mmrl"}
    if pipeline:
        out["pipeline_tag"] = pipeline
    out["tags"] = ["mmrl", *(["reinforcement-learning"] if _samples(config) else []), *([name] if name else [])]
    base = find_hub_model(_policy_path(config))
    return out if base is None else {**out, "base_model": base}


def find_hub_model(path: str | None) -> str | None:
    """Return the repository of the Hub that a policy's path names; None for random weights, files and packages."""
    if not path or path.startswith(PACKAGE):
        return None
    repo = path.rpartition("/")[0] if path.endswith(GGUF) else path
    if is_local(repo) or Path(path).exists():
        return None
    try:
        validate_repo_id(repo)
    except HFValidationError:
        return None
    return repo


def format_training(config: Node) -> list[str]:
    """Format what the policy was trained from, on what and for how long, as items of a list."""
    data, model = config["data"]["init_args"], config["model"]["init_args"]
    terms = ((model.get("objective") or {}).get("init_args") or {}).get("terms") or {}
    phases = model.get("phases") or {}
    return [
        f"- Start: {_describe_start(config)}",
        f"- Task: {_describe_task(data['task'])}",
        f"- Reward: {_describe_reward(config)}",
        f"- Phases of an update: {', '.join(phases)}" if phases else f"- Loss: {', '.join(terms)}",
        f"- Length: {config['trainer'].get('max_epochs')} iterations of {_describe_iteration(data)}",
    ]


def _describe_iteration(data: Mapping[str, Any]) -> str:
    rollout = data["rollout"].get("init_args") or {}
    if "horizon" in rollout:
        return f"{rollout['num_envs']} environments times {rollout['horizon']} decisions"
    per_prompt = data.get("group_size")
    each = f", {per_prompt} episodes each" if isinstance(per_prompt, int) and per_prompt > 1 else ""
    return f"{data.get('num_prompts')} prompts{each}"


def _describe_start(config: Node) -> str:
    """The weights that training began with: of the Hub, of a file that others may not have, or random."""
    path = _policy_path(config)
    if path is None:
        callbacks = [callback.get("init_args") or {} for callback in config["trainer"].get("callbacks") or ()]
        stages = next((arguments["stages"] for arguments in callbacks if arguments.get("stages")), {})
        return "random weights" + (f", then the stages {', '.join(stages)}" if stages else "")
    if (repo := find_hub_model(path)) is not None:
        return f"[{repo}](https://huggingface.co/{repo})" + (f", file {Path(path).name}" if path != repo else "")
    if path.startswith(PACKAGE):
        package, _, file = path.removeprefix(PACKAGE).partition("/")
        return f"the file `{file}` of the Python package `{package}`"
    return f"a local {'file' if path.endswith(GGUF) else 'folder'}, `{Path(path).name}`, that is not published with it"


def _describe_task(task: Node) -> str:
    arguments = task.get("init_args") or {}
    sim = arguments.get("sim")
    if isinstance(sim, Mapping):
        return f"`{sim['class_path']}` ({_format_arguments(sim.get('init_args') or {})})"
    return f"`{task['class_path']}` ({_format_arguments(arguments)})"


def _describe_reward(config: Node) -> str:
    data = config["data"]["init_args"]
    if not _samples(config):
        return f"none; the policy learns from `{data['rollout']['class_path']}`"
    reward = data["reward"]
    arguments = reward.get("init_args") or {}
    if arguments.get("functions"):
        names = ", ".join(f"`{Path(str(function)).name}`" for function in arguments["functions"])
        return f"functions {names}" + _format_weights(arguments.get("weights"), ", with weights ")
    if not arguments.get("weights") and "weights" in arguments:
        return "what the environment pays for every decision"
    return f"`{reward['class_path']}`" + _format_weights(arguments.get("weights"), ": ")


def _format_weights(weights: Mapping[str, Any] | None, before: str) -> str:
    return before + ", ".join(f"{weight} {name}" for name, weight in weights.items()) if weights else ""


def _format_arguments(arguments: Mapping[str, Any]) -> str:
    """Plain arguments; of a path only the last part, which tells nothing about this machine."""
    plain = {key: value for key, value in arguments.items() if isinstance(value, (str, int, float)) and value != ""}
    texts = {key: Path(value).name if isinstance(value, str) else value for key, value in plain.items()}
    return ", ".join(f"{key}={value}" for key, value in texts.items())


def _policy_path(config: Node) -> str | None:
    policy = config["model"]["init_args"].get("policy") or {}
    return (policy.get("init_args") or {}).get("path") or None


def _samples(config: Node) -> bool:
    """Whether the policy plays the episodes that it learns from."""
    return bool(get_class(config["data"]["init_args"]["rollout"]["class_path"]).samples)
