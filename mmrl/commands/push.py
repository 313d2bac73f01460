"""`mmrl push`: write a model card for a run's policy, and upload both to the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mmrl.commands.catalogue.recipes import cite
from mmrl.config.compose import CONF
from mmrl.errors import ConfigError
from mmrl.runs.writable import writable

OPTIONS = ("repo", "private", "endpoint")


def push(arguments: Sequence[str]) -> Path:
    """Write RUN/policy/README.md and upload RUN/policy; with --dry-run the card alone. Returns the card's path."""
    places, given, dry = [], {}, False
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if argument == "--dry-run":
            dry = True
        elif equals and key in OPTIONS and value:
            given[key] = value
        else:
            places.append(argument)
    if len(places) != 1 or (not dry and "repo" not in given) or given.get("private", "true") not in ("true", "false"):
        raise ConfigError(
            f"give one run folder and repo=USER/NAME, got {list(arguments)}; options are private=true|false, "
            "endpoint=URL and --dry-run"
        )
    folder = Path(places[0])
    if not (folder / "config.yaml").is_file() or not (folder / "policy").is_dir():
        raise ConfigError(
            f"{folder}: no trained policy; give the folder of a finished run, with config.yaml and policy/"
        )
    card = folder / "policy" / "README.md"
    with writable(folder / "policy", "mmrl push"):
        card.write_text(format_card(folder, given.get("repo", f"USER/{folder.name}")), encoding="utf-8")
    print(f"written: {card}")
    if not dry:
        print(f"uploaded: {_upload(folder / 'policy', given)}")
    return card


def _upload(folder: Path, given: Mapping[str, str]) -> str:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=given.get("endpoint"))
    try:
        api.create_repo(given["repo"], private=given.get("private", "true") == "true", exist_ok=True)
        return str(api.upload_folder(repo_id=given["repo"], folder_path=folder, commit_message="Upload policy"))
    except Exception as error:  # of the Hub, of the network, or of a name that the Hub refuses
        raise ConfigError(
            f"repo={given['repo']}: {' '.join(str(error).split())}; log in with `hf auth login`, or write the card "
            "alone with --dry-run"
        ) from error


def format_card(folder: Path, repo: str) -> str:
    """Format the model card: paper, evaluation with interval and protocol, how to load, and the configuration."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    recipe, model = config.get("recipe"), config["model"]["init_args"]
    policy = (model.get("policy") or {}).get("init_args") or {}
    transformers = (folder / "policy" / "config.json").is_file()
    header: dict[str, Any] = {
        "library_name": "transformers" if transformers else "mmrl",
        "tags": ["mmrl", "reinforcement-learning", *([recipe] if recipe else [])],
    }
    if policy.get("path") and not Path(policy["path"]).exists():
        header["base_model"] = policy["path"]
    parts = [f"---\n{yaml.safe_dump(header, sort_keys=False)}---", f"# {repo.rpartition('/')[2]}"]
    parts.append(f"Trained with mmrl, `recipe={recipe}`." if recipe else "Trained with mmrl.")
    paper = _read_paper(recipe)
    if paper:
        parts.append(
            f"Method: {cite(paper)}; {paper['source']}. Status: {paper['status']}. Differs: {paper['differs']}."
        )
    parts += ["## Evaluation", _format_evaluation(folder), "## Use", _format_use(repo, transformers, config)]
    return "\n\n".join(parts) + "\n"


def _read_paper(recipe: str | None) -> Mapping[str, Any]:
    file = CONF / "recipe" / f"{recipe}.yaml"
    return (yaml.safe_load(file.read_text()).get("paper") or {}) if recipe and file.is_file() else {}


def _format_evaluation(folder: Path) -> str:
    """A table of rates with their intervals, and the protocol; a sentence where the run has not been measured."""
    file = folder / "evaluation.json"
    if not file.is_file():
        return "Not measured. `mmrl evaluate` writes the numbers, and `mmrl push` this card again."
    result = json.loads(file.read_text())
    lines = ["| checkpoint | decode | measure | value | 95 % interval | episodes |", "|---|---|---|---:|---:|---:|"]
    for title, decodes in result["metrics"].items():
        for decode, evaluators in decodes.items():
            for name, values in evaluators.items():
                if {"mean", "lower", "upper", "n"} <= values.keys():
                    interval = f"{100 * values['lower']:.1f} to {100 * values['upper']:.1f} %"
                    rate = f"{100 * values['mean']:.1f} %"
                    lines.append(f"| {title} | {decode} | {name} | {rate} | {interval} | {values['n']:g} |")
    place = f"{result['count']} problems of the split {result['split']} of task {result['task']}"
    lines += [
        "",
        f"Wilson intervals over {place}. Protocol `{result['protocol']}`: numbers under another hash differ in",
    ]
    return "\n".join([*lines, "problems, decodes or evaluators, and cannot be compared."])


def _format_use(repo: str, transformers: bool, config: Mapping[str, Any]) -> str:
    kind = config["model"]["init_args"]["policy"]["class_path"].rpartition(".")[2]
    lines = []
    if transformers:
        auto = "AutoModelForImageTextToText" if kind == "VisionLanguagePolicy" else "AutoModelForCausalLM"
        lines = [
            "```python",
            f"from transformers import {auto}, AutoProcessor",
            "",
            f'model = {auto}.from_pretrained("{repo}")',
            f'processor = AutoProcessor.from_pretrained("{repo}")',
            "```",
            "",
        ]
    path = repo if transformers else "FOLDER"
    lines += [
        "```sh",
        f"mmrl fit policy.path={path}        # train on",
        f"mmrl evaluate task=... policy.path={path}",
        "```",
    ]
    return "\n".join(lines)
