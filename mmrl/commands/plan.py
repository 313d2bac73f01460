"""`mmrl plan`: memory of a run by phase and rank, before it starts; nothing is trained and no weights are loaded."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mmrl.commands.cli import CLI
from mmrl.commands.fit_arguments import check_dashed, split_switches
from mmrl.commands.help.usage import PLAN_OPTIONS
from mmrl.commands.planning.advice import advise
from mmrl.commands.planning.planning import Given, RunPlan, plan_run
from mmrl.commands.planning.report import parse_bytes, print_report, to_json
from mmrl.commands.planning.seconds import read_seconds, scale_seconds
from mmrl.commands.planning.shapes import build_on_meta
from mmrl.config.compose import compose, groups, to_hydra_overrides, to_lightning
from mmrl.config.overrides import check_groups
from mmrl.config.wiring import load
from mmrl.core.errors import ConfigError
from mmrl.learners.learner import Learner
from mmrl.policies.base import Policy


class PlanCLI(CLI):
    """CLI that builds policies on the meta device, and no trainer; it tries no reward, which may ask a server."""

    def before_instantiate_classes(self) -> None:
        super().before_instantiate_classes()
        self.parser.check = None  # type: ignore[attr-defined]

    def _part(self, class_type: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(class_type, type) and issubclass(class_type, Policy):
            return super()._part(_OnMeta(class_type), *args, **kwargs)
        return super()._part(class_type, *args, **kwargs)

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        return None


class _OnMeta:
    """Constructor of a policy class on the meta device."""

    def __init__(self, kind: type[Policy]):
        self.kind = kind
        self.__module__, self.__qualname__, self.__name__ = kind.__module__, kind.__qualname__, kind.__name__

    def __call__(self, **kwargs: Any) -> Policy:
        return build_on_meta(self.kind, kwargs)


@dataclass(frozen=True)
class PlanRequest:
    """What the command line asks for.

    Args:
        words: of `mmrl fit`.
        given: device memory and lengths.
        as_json: print one JSON object.
        measured: folder of a run whose seconds are scaled.
    """

    words: list[str]
    given: Given
    as_json: bool = False
    measured: Path | None = None


def parse(arguments: Sequence[str]) -> PlanRequest:
    """Separate the options of `mmrl plan` from the words of `mmrl fit`."""
    words, options, rest = [], {}, iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in PLAN_OPTIONS:
            options[name] = value if equals else next(rest, "")
        elif argument == "--json":
            options[name] = "true"
        else:
            words.append(argument)
    folder = Path(options["--from"]) if "--from" in options else None
    if folder is not None and not (folder / "metrics.csv").is_file():
        raise ConfigError(f"--from {folder}: no metrics.csv there; give the folder of a run")
    sizes = Given(
        memory=parse_bytes(options["--memory"]) if "--memory" in options else None,
        prompt_tokens=_parse_number(options, "--prompt-tokens"),
        response_tokens=_parse_number(options, "--response-tokens"),
    )
    return PlanRequest(words, sizes, "--json" in options, folder)


def plan(arguments: Sequence[str]) -> RunPlan:
    """Print the plan of a run. Returns it."""
    request = parse(arguments)
    run_plan = build_plan(request.words, request.given)
    tried = [] if run_plan.fits else advise(run_plan, request.words, lambda words: build_plan(words, request.given))
    seconds = None if request.measured is None else scale_seconds(run_plan, *read_run(request.measured, request.given))
    if request.as_json:
        print(json.dumps(to_json(run_plan, tried, seconds), indent=2))
    else:
        print_report(run_plan, tried, seconds)
    return run_plan


def build_plan(words: Sequence[str], given: Given) -> RunPlan:
    """Compose the configuration of the words as `mmrl fit` does, and plan it."""
    cli = parse_run(words, PlanCLI)
    kind = load(cli._plain()["model"]["class_path"])
    if not issubclass(kind, Learner):
        raise ConfigError(f"{kind.__name__} learns from a replay buffer: `mmrl plan` plans recipes without one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers, about its own names
        cli.build()
        return plan_run(cli.model, cli.datamodule, cli._plain()["trainer"], given)


C = TypeVar("C", bound=CLI)


def parse_run(words: Sequence[str], kind: type[C]) -> C:
    """Parse and check the words of `mmrl fit`, as it does; nothing is built.

    Args:
        kind: the CLI that will build the parts.
    """
    words, switches = split_switches(words)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # hints about loggers, devices and seeds
    if any(word.startswith("--") for word in words):
        check_dashed(words, switches["trust"])
        return kind(list(words), build=False)
    to_hydra_overrides(words)
    check_groups(words, groups())
    return kind(to_lightning(compose(words)), build=False)


def read_run(folder: Path, given: Given) -> tuple[RunPlan, dict[str, float]]:
    """Plan the configuration of a run, and read the seconds that its iterations took."""
    config = ["--config", str(folder / "config.yaml")]
    return build_plan(config, given), read_seconds(folder / "metrics.csv")


def _parse_number(options: dict[str, str], name: str) -> int | None:
    if name not in options:
        return None
    if not options[name].isdigit() or int(options[name]) < 1:
        raise ConfigError(f"{name}={options[name]}: must be a whole number of tokens, at least 1")
    return int(options[name])
