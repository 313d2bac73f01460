"""Check that the parts of a recipe fit together, before any model is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any, get_type_hints

import torch

from mmrl.config.renamed import find_new_name
from mmrl.core.columns import COLLATED
from mmrl.core.errors import ConfigError
from mmrl.engines.base import SamplesModels

PREDICTED = (
    "needs {missing} from the policy; set model.policy.value_head=true for values, "
    "model.policy.output_router_logits=true for the loads of experts, and name other numbers under "
    "model.policy.statistics"
)
SAMPLED = (
    "samples from {missing}: name it under model.frozen_models, as in "
    "+model.frozen_models.NAME={{_target_: mmrl.policies.text.policy.TextPolicy, path: FOLDER}}"
)
MODELS = (
    "needs models {missing}; set model.reference=true, or name them under model.auxiliary_models or model.frozen_models"
)
OTHERS = (
    "asks for {missing}: name it under model.auxiliary_models if it is a model trained with the policy, under "
    "model.frozen_models if it is one that is not trained, or under data.transforms if it is a context of the answers; "
    "model@context is a model in a context"
)
UNWRITTEN = "reads {missing}, and no part writes them"


def check_wiring(model: Mapping[str, Any], data: Mapping[str, Any], recipe: str | None) -> None:
    """Check that every column that a part of the pipeline reads is written before; name recipe, part and column.

    Args:
        model: {class_path, init_args} of the learner.
        data: {class_path, init_args} of the data module.
        recipe: name of the recipe, for messages.
    """
    where = f"recipe {recipe!r}: " if recipe else ""
    learner, module = model["init_args"], data["init_args"]
    if "phases" in learner:
        check_phases(learner["phases"], module, where)
        return
    # what policy, rollout and transforms offer before the annotators run
    policy = learner["policy"]
    policy_class, policy_args = load(policy["class_path"]), policy.get("init_args") or {}
    predicted, provided = policy_class.predicts(policy_args), policy_class.provides(policy_args)
    further = frozenset(learner.get("auxiliary_models") or ()) | frozenset(learner.get("frozen_models") or ())
    models = further | ({"reference"} if learner.get("reference") else set())
    transforms = [build_nested(spec) for spec in (module.get("transforms") or {}).values() if spec is not None]
    provided = _find_sampled_columns(provided, module, where)
    _check_judges(module, where)
    written = (part.writes() for part in (load(module["rollout"]["class_path"]), *transforms))
    columns = (COLLATED | provided).union(*written)
    contexts = frozenset().union(*(transform.contexts() for transform in transforms))

    def need(wanted: frozenset[str], have: frozenset[str] | set[str], part: str, hint: str) -> None:
        missing = sorted(name for name in wanted - set(have) if not name.startswith("obs."))
        if missing:
            raise ConfigError(f"{where}{part} {hint.format(missing=missing)}{_explain_columns(missing, module)}")

    _check_sampled(module, transforms, partial(need, have=frozenset(learner.get("frozen_models") or ())))
    # each annotator reads columns of those before it
    annotators, pipeline = module.get("annotators") or {}, module.get("pipeline") or []
    for name in pipeline:
        if pipeline.count(name) > 1:
            raise ConfigError(f"{where}data.pipeline={pipeline} names {name!r} twice; remove one")
        if annotators.get(name) is None:
            _refuse_annotator(name, annotators, where)
        annotator = build(annotators[name])
        part = f"annotator {name!r}"
        need(annotator.reads(), columns, part, "reads {missing}, and no part before it writes them")
        need(annotator.needs(), predicted, part, PREDICTED)
        need(annotator.contexts(), contexts, part, "takes the choices in context {missing}; data.transforms gives none")
        need(annotator.models(), models, part, MODELS)
        columns |= annotator.writes()
    _check_rows(module.get("rows") or {}, partial(need, have=columns))
    # the loss reads the columns of the whole pipeline
    weighting = build(module["weighting"])
    need(weighting.reads(), columns, "the weighting", UNWRITTEN)
    objective = learner["objective"].get("init_args", learner["objective"])
    for name, spec in objective["terms"].items():
        if spec is None:
            raise ConfigError(f"{where}term {name!r} is null; leave it out instead")
        term = build(spec)
        need(term.reads(), columns | {"loss_weights"}, f"term {name!r}", UNWRITTEN)
        need(term.needs(), predicted, f"term {name!r}", PREDICTED)
        need(term.others(), _list_passes(models, contexts), f"term {name!r}", OTHERS)
    for name, column in (objective.get("row_masks") or {}).items():
        need(frozenset({column.removeprefix("~")}), columns, f"objective.row_masks[{name!r}]", UNWRITTEN)


def find_row_readers(model: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that parts read as the rollout wrote them, and the first such part of each.

    Args:
        model: {class_path, init_args} of the learner.
        data: {class_path, init_args} of the data module.
    """
    learner, module = model["init_args"], data["init_args"]
    readers: dict[str, str] = {}
    if "phases" in learner:
        return readers
    written: set[str] = set()
    for name in module.get("pipeline") or []:
        annotator = build(module["annotators"][name])
        readers |= {c: f"annotator {name!r}" for c in annotator.reads() - written if c not in readers}
        written |= annotator.writes()
    objective = learner["objective"].get("init_args", learner["objective"])
    for name, spec in objective["terms"].items():
        readers |= {c: f"term {name!r}" for c in build(spec).reads() - written if c not in readers}
    return readers


def _list_passes(models: frozenset[str] | set[str], contexts: frozenset[str]) -> frozenset[str]:
    """Names of further forward passes: of models, of the policy in contexts, and of models in contexts."""
    return frozenset({*models, *contexts, *(f"{model}@{context}" for model in models for context in contexts)})


def _find_sampled_columns(columns: frozenset[str], module: Mapping[str, Any], where: str) -> frozenset[str]:
    """Return those of a policy's columns that come with its samples: an engine with a copy of weights has no values.

    Refuses such an engine where the policy records experts as it samples.
    """
    engine = load(module["engine"]["class_path"]) if module.get("engine") else None
    if engine is None or engine.uses_policy:
        return columns
    if "routed_experts" in columns:
        raise ConfigError(
            f"{where}model.policy.router_replay=true: {engine.__name__} samples from a copy of the weights and reports "
            "no routed_experts; use engine=local, or leave it out"
        )
    return columns - {"values"}


def _check_sampled(module: Mapping[str, Any], transforms: Sequence[Any], need: Callable[..., None]) -> None:
    """Check that there are the frozen models which rollout, transforms and judges sample from."""
    for part in build_samplers(module, transforms):
        need(part.sampled_models(), part=f"{type(part).__name__} of data", hint=SAMPLED)


def build_samplers(module: Mapping[str, Any], transforms: Sequence[Any]) -> list[SamplesModels]:
    """Return the parts of a data module whose requests may name frozen models, of which few are built for this.

    Args:
        module: arguments of the data module.
        transforms: its transforms, built.
    """
    rollout = module["rollout"]
    samples = issubclass(load(rollout["class_path"]), SamplesModels)
    reward = module.get("reward")
    judges = [*(spec["init_args"]["judge"] for spec in _find_judges(reward)), *_find_named_judges(reward)]
    parts = [*([build_nested(rollout)] if samples else []), *transforms, *map(build_nested, judges)]
    return [part for part in parts if isinstance(part, SamplesModels)]


def _find_judges(spec: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rewards, within a reward too, whose judge is a model of the run."""
    arguments = (spec.get("init_args") or {}) if isinstance(spec, Mapping) else {}
    judge = arguments.get("judge")
    if isinstance(judge, Mapping) and "class_path" in judge and getattr(load(judge["class_path"]), "of_run", False):
        yield spec
    for value in arguments.values():
        yield from _find_judges(value)


def _find_named_judges(spec: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the judges of a reward with several of them, within a reward too, that are models of the run."""
    arguments = (spec.get("init_args") or {}) if isinstance(spec, Mapping) else {}
    for judge in (arguments.get("judges") or {}).values():
        if getattr(load(judge["class_path"]), "of_run", False):
            yield judge
    for value in arguments.values():
        yield from _find_named_judges(value)


def _check_judges(module: Mapping[str, Any], where: str) -> None:
    """Refuse log-probs of a judge whose weights are in an engine that gives none."""
    engine = load(module["engine"]["class_path"]) if module.get("engine") else None
    for spec in _find_judges(module.get("reward")):
        form = spec["init_args"].get("form") or {}
        reads = "class_path" in form and getattr(load(form["class_path"]), "reads_options", False)
        if reads and engine is not None and not engine.uses_policy:
            raise ConfigError(
                f"{where}reward.form={form['class_path'].rpartition('.')[2]} reads log-probs of the judge, and "
                f"{engine.__name__} gives none; use engine=local, a judge of its own, or a form with a written verdict"
            )


def _check_rows(rows: Mapping[str, Any], need: Callable[..., None]) -> None:
    """Check the columns that row transforms read."""
    for name, spec in rows.items():
        reads = build_nested(spec).reads() if spec is not None else frozenset()
        need(reads, part=f"data.rows.{name}", hint="reads {missing}, and no part before it writes them")


def check_phases(phases: Mapping[str, Any], module: Mapping[str, Any], where: str) -> None:
    """Check that every column that a phase of an update reads is written before."""
    columns = {"loss_weights"} | (build(module["replay"]).writes() if module.get("replay") else COLLATED)
    for name, spec in phases.items():
        if spec is None:
            raise ConfigError(f"{where}phase {name!r} is null; leave it out instead")
        phase = build_nested(spec)
        missing = sorted(c for c in phase.reads() - columns if not c.startswith(("obs.", "next.")))
        if missing:
            raise ConfigError(
                f"{where}phase {name!r} reads {missing}, and no part before it writes them"
                f"{_explain_columns(missing, {})}"
            )
        columns |= phase.writes()


def _refuse_annotator(name: str, annotators: Mapping[str, Any], where: str) -> None:
    if new := find_new_name("parts", "data.annotators", name):
        raise ConfigError(f"{where}data.pipeline: {name} was renamed to {new}")
    raise ConfigError(f"{where}data.pipeline names {name!r}, but data.annotators has {sorted(annotators)}")


def _explain_columns(missing: Sequence[str], module: Mapping[str, Any]) -> str:
    """Return, for the end of a message, how columns are called now, and the spare annotators that write them.

    Args:
        missing: the columns.
        module: arguments of the data module.
    """
    pairs = [(name, find_new_name("columns", name)) for name in missing]
    renamed = "".join(f"; {name} was renamed to {new}" for name, new in pairs if new)
    annotators, pipeline = module.get("annotators") or {}, module.get("pipeline") or []
    spare = {name: spec for name, spec in annotators.items() if spec is not None and name not in pipeline}
    writers = [name for name, spec in spare.items() if build(spec).writes() & set(missing)]
    if not writers:
        return renamed
    return f"{renamed}; {writers} of data.annotators write them: name one in data.pipeline before its reader"


def load(path: str) -> Any:
    """Import the class of an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def build(spec: Mapping[str, Any]) -> Any:
    """Build a part with plain arguments from its {class_path, init_args}."""
    return load(spec["class_path"])(**(spec.get("init_args") or {}))


def build_nested(spec: Any) -> Any:
    """Build a part whose arguments may be parts; an optimiser becomes a function of its parameters."""
    if isinstance(spec, Mapping) and "class_path" in spec:
        part = load(spec["class_path"])
        arguments = build_arguments(part, spec.get("init_args") or {})
        return partial(part, **arguments) if issubclass(part, torch.optim.Optimizer) else part(**arguments)
    if isinstance(spec, Mapping):
        return {name: build_nested(value) for name, value in spec.items()}
    return [build_nested(value) for value in spec] if isinstance(spec, list) else spec


def build_arguments(part: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Build the arguments of a part; a mapping for a parameter of a dataclass becomes one, as the typed parser's do."""
    try:
        hints = get_type_hints(part.__init__)  # type: ignore[misc]
    except NameError:  # of a foreign class, whose names are imported for a type checker alone
        hints = {}
    return {
        name: hints[name](**build_arguments(hints[name], value))
        if isinstance(value, Mapping) and "class_path" not in value and is_dataclass(hints.get(name))
        else build_nested(value)
        for name, value in arguments.items()
    }
