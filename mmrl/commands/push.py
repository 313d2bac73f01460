"""`mmrl push`: write a model card for a run's policy, and upload both to the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_class

from mmrl.commands.catalogue.recipes import cite
from mmrl.commands.cli import enter_project_of
from mmrl.commands.results.model_card import build_metadata, format_training
from mmrl.config.layers.files import find_part, read_inherited_differences, read_paper, read_run
from mmrl.config.option_files import find_options
from mmrl.core.errors import ConfigError
from mmrl.evaluation.protocol import NAME as PROTOCOL
from mmrl.experiments.papers import STATUS, read_differences
from mmrl.files.atomic import check_inside, restore_folder, write_file
from mmrl.runs.checkpoint_file import read_manifest
from mmrl.runs.run_folder import last_checkpoint
from mmrl.runs.writable import writable

OPTIONS = ("repo", "private", "endpoint")
LOADERS = {
    "ScoringPolicy": ("AutoModelForSequenceClassification", "AutoTokenizer", "tiny_scorer"),
    "VisionLanguagePolicy": ("AutoModelForImageTextToText", "AutoProcessor", "vlm"),
    "TextPolicy": ("AutoModelForCausalLM", "AutoTokenizer", "text"),
}
"""By class of policy: the classes of transformers that load its folder, and the option of the group `policy`."""
PIPELINES = {
    "ScoringPolicy": "text-classification",
    "VisionLanguagePolicy": "image-text-to-text",
    "TextPolicy": "text-generation",
    **dict.fromkeys(("ActionPolicy", "ChainPolicy", "LeRobotPolicy", "PretrainedVLA"), "robotics"),
    **dict.fromkeys(("ControlPolicy", "ActorPolicy"), "reinforcement-learning"),
}
"""By class of policy: the task of the Hub."""


def push(arguments: Sequence[str]) -> Path:
    """Write RUN/policy/README.md and upload RUN/policy; with --dry-run the card alone. Returns the card's path."""
    # one run folder, options by name
    places, options, dry = [], {}, False
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if argument == "--dry-run":
            dry = True
        elif equals and key in OPTIONS and value:
            options[key] = value
        else:
            places.append(argument)
    if (
        len(places) != 1
        or (not dry and "repo" not in options)
        or options.get("private", "true") not in ("true", "false")
    ):
        raise ConfigError(
            f"give one run folder and repo=USER/NAME, got {list(arguments)}; options are private=true|false, "
            "endpoint=URL and --dry-run"
        )
    folder = Path(places[0])
    if not (folder / "config.yaml").is_file() or not restore_folder(folder / "policy").is_dir():
        raise ConfigError(
            f"{folder}: no trained policy; give the folder of a finished run, with config.yaml and policy/"
        )
    # the card is written before anything is sent
    card = folder / "policy" / "README.md"
    with writable(folder / "policy", "mmrl push"):
        check_inside(card.parent, folder)
        write_file(card, format_card(folder, options.get("repo", f"USER/{folder.name}")))
    print(f"written: {card}")
    if not dry:
        print(f"uploaded: {_upload(folder / 'policy', options)}")
    return card


def _upload(folder: Path, options: Mapping[str, str]) -> str:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=options.get("endpoint"))
    try:
        api.create_repo(options["repo"], private=options.get("private", "true") == "true", exist_ok=True)
        return str(api.upload_folder(repo_id=options["repo"], folder_path=folder, commit_message="Upload policy"))
    except Exception as error:  # of the Hub, of the network, or of a name that the Hub refuses
        raise ConfigError(
            f"repo={options['repo']}: {' '.join(str(error).split())}; log in with `hf auth login`, or write the card "
            "alone with --dry-run"
        ) from error


def format_card(folder: Path, repo: str) -> str:
    """Format the model card: paper, evaluation with interval and protocol, how to load, and the configuration."""
    enter_project_of(folder / "config.yaml")  # checks the file, whose values it leaves as texts
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    run = describe_run(config)
    kinds = _policy_kinds(config)
    transformers = (folder / "policy" / "config.json").is_file() and not LOADERS.keys().isdisjoint(kinds)
    pipeline = next((PIPELINES[kind] for kind in kinds if kind in PIPELINES), None)
    header = build_metadata(config, pipeline, transformers)
    parts = [f"---\n{yaml.safe_dump(header, sort_keys=False)}---", f"# {repo.rpartition('/')[2]}"]
    parts.append(f"Trained with mmrl, `{run}`." if run else "Trained with mmrl.")
    parts += _format_method(run, _read_paper(config))
    use = _format_use(repo, config) if transformers else _format_commands("policy.path=FOLDER")
    parts += ["## Training", "\n".join(format_training(config))]
    parts += ["## Evaluation", format_evaluation(folder), "## Use", use]
    return "\n\n".join(parts) + "\n"


def _format_method(run: str, paper: Mapping[str, Any]) -> list[str]:
    """The paper, and how the recipe or method relates to it; what a run changes beside is in its configuration."""
    if not paper:
        return []
    method = f"Method: {'; '.join(filter(None, [cite(paper), paper.get('source')]))}."
    relation = STATUS.get(str(paper.get("status")))
    if relation is None:
        return [method]
    differs = "" if paper.get("differs") in (None, "none") else f" Differences: {paper['differs']}."
    return [f"{method} mmrl's `{run}` {relation}.{differs} This run may have other settings."]


def describe_run(config: Mapping[str, Any]) -> str:
    """The words that name what ran: its recipe, or else its method; empty where there is neither."""
    return next((f"{group}={config[group]}" for group in ("recipe", "method") if config.get(group)), "")


def _read_paper(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The paper of a run's recipe or method; under `differs` what both say.

    A recipe is mmrl's, one of the run's own folder, or one that is found from here. One that names a paper of its own
    says all about it; every other has the paper of its method.
    """
    recipe, method, options = config.get("recipe"), config.get("method"), find_options()
    file = Path(config.get("project") or "", "conf", "recipe", f"{recipe}.yaml")
    ours = options["recipe"].get(recipe or "")
    choices: dict[str, str | None] = {"recipe": recipe}
    if ours is None or ours.origin:
        file = file if ours is None else ours.path
        header = (yaml.safe_load(file.read_text(encoding="utf-8")).get("paper") or {}) if file.is_file() else {}
        if header.get("title") or method not in options["method"]:
            return header
        choices = {"method": method, "setting": None}
    method = find_part(read_run(choices), "method")
    inherited = [f"{base}, which it extends: {text}" for base, text in read_inherited_differences(method).items()]
    return {**read_paper(choices), "differs": "; ".join([*read_differences(choices).values(), *inherited]) or "none"}


def format_evaluation(folder: Path) -> str:
    """The measures with their intervals, of which weights they are, and the protocol; or that there are none."""
    file = folder / "evaluation.json"
    if not file.is_file():
        return "Not measured. `mmrl evaluate` writes the numbers, and `mmrl push` this card again."
    result = json.loads(file.read_text())
    protocol = folder / PROTOCOL
    evaluators = json.loads(protocol.read_text())["entries"]["evaluators"] if protocol.is_file() else {}
    lines = [
        "| checkpoint | decode | measure | value | interval | level | episodes |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for title, decodes in result["metrics"].items():
        for decode, measured in decodes.items():
            for name, values in measured.items():
                level = evaluators.get(name, {}).get("level")
                lines += [f"| {title} | {decode} | {row} |" for row in _format_measures(name, values, level)]
    place = f"{result['count']} problems of the split {result['split']} of task {result['task']}"
    lines += [
        "",
        f"Wilson intervals over {place}. Protocol `{result['protocol']}`: numbers under another hash differ in",
        "problems, decodes or evaluators, and cannot be compared.",
    ]
    return "\n".join([*_format_other_weights(folder, result), *lines])


def _format_measures(name: str, values: Mapping[str, float], level: float | None) -> Iterator[str]:
    """Cells of an evaluator's measures: name, value, interval if it has one, its level, and number of episodes."""
    for key, value in values.items():
        if key.endswith(("lower", "upper", "errors")) or key in ("n", "prompts") or key.endswith("/n"):
            continue
        prefix = key.removesuffix("mean")
        mean = key == "mean" or key.endswith("/mean")
        low, high = (f"{prefix}{end}" if mean else f"{key}_{end}" for end in ("lower", "upper"))
        label = name if key == "mean" and "lower" in values else f"{name}/{key}"
        count = values.get(f"{prefix}n" if mean else "n", values.get("prompts"))
        text, interval, stated = f"{value:.4g}", "", ""
        if low in values:
            text, interval = f"{100 * value:.1f} %", f"{100 * values[low]:.1f} to {100 * values[high]:.1f} %"
            stated = "" if level is None else f"{100 * level:g} %"
        yield " | ".join([label, text, interval, stated, "" if count is None else f"{count:g}"])


def _format_other_weights(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """A paragraph if the last weights that were measured are not known to be the policy's, as in a resumed run."""
    measured, last = list(result["checkpoints"].values())[-1], last_checkpoint(folder)
    step, of_policy = measured["optimiser_steps"], read_manifest(last).get("global_step") if last.is_file() else None
    if step is None:
        note = f"This policy has not been measured: the numbers are of {measured['path']}, no checkpoint of this run."
    elif of_policy is None:
        note = f"Measured at optimiser step {step}; that of the policy is not known, {last.name} does not state it."
    elif step != of_policy:
        steps = f"measured at optimiser step {step}, the policy is of step {of_policy}"
        note = f"This policy has not been measured: {steps}."
    else:
        return []
    return [f"{note} `mmrl evaluate` measures it, and `mmrl push` writes this card again.", ""]


def _policy_kinds(config: Mapping[str, Any]) -> list[str]:
    """Names of the policy's class and of its bases."""
    return [kind.__name__ for kind in get_class(config["model"]["init_args"]["policy"]["class_path"]).__mro__]


def _format_use(repo: str, config: Mapping[str, Any]) -> str:
    model, processor, option = next(LOADERS[kind] for kind in _policy_kinds(config) if kind in LOADERS)
    name = processor.removeprefix("Auto").lower()
    lines = [
        "```python",
        f"from transformers import {model}, {processor}",
        "",
        f'model = {model}.from_pretrained("{repo}")',
        f'{name} = {processor}.from_pretrained("{repo}")',
        "```",
        "",
        _format_commands(f"policy={option} policy.path={repo}"),
    ]
    return "\n".join(lines)


def _format_commands(policy: str) -> str:
    return f"```sh\nmmrl fit {policy}        # train on\nmmrl evaluate task=... {policy}\n```"
