"""Checks of parts before training: small ones are built before a model is, and the policy must know the decodes."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from mmrl.config.errors.part import explain_error
from mmrl.config.signatures import constructor_parameters
from mmrl.config.wiring import build_arguments, load
from mmrl.core.errors import ConfigError
from mmrl.core.types import Sampling
from mmrl.data.parity import Parity

_PARTS = ("curriculum", "parity", "weighting", "sampling", "reward")
_PLAIN = {"sampling": Sampling, "parity": Parity}
"""Parts of one class, which a configuration need not name."""
_NAMED = ("annotators", "transforms", "rows")
_STEPS, _LATE = 200, 20_000
"""Steps of a schedule that are tried, and up to which a learning rate of 0 may last, as while a critic is warmed up."""
_MODELS = ("policy", "auxiliary_models", "frozen_models")
"""Arguments of learners that hold models, whose settings have names of their own."""
_NULL = ("None", "Optional", "Any", "_empty")
"""Marks in the annotation of an argument that may be null."""


def check_parts(model: Mapping[str, Any], data: Mapping[str, Any], trains: bool = True) -> Any:
    """Build parts that have only plain values, and report a constructor's error with the key.

    Args:
        model: {class_path, init_args} of the learner.
        data: {class_path, init_args} of the data module.
        trains: whether optimisers and schedules are built too.

    Returns:
        The reward; None without one.

    Raises:
        ConfigError: with the key, the class and the constructor's message.
    """
    _check_nulls(model, "model")
    _check_nulls(data, "data")
    learner, module = model.get("init_args") or {}, data.get("init_args") or {}
    for key, spec in _specs(learner, "model"):
        if trains or not key.endswith("optimizer"):
            _try(key, spec)
    optimizer = learner.get("optimizer")
    if trains and isinstance(optimizer, Mapping) and learner.get("scheduler") is not None:
        scheduler = _try("model.scheduler", learner["scheduler"], _build(optimizer))
        _check_schedule("model.scheduler", scheduler, learner["scheduler"].get("init_args") or {})
    built = {name: _try(f"data.{name}", module.get(name), kind=_PLAIN.get(name)) for name in _PARTS}
    for name in _NAMED:
        for part, spec in (module.get(name) or {}).items():
            _try(f"data.{name}.{part}", spec)
    held_out = (module.get("evaluation") or {}).get("init_args") or {}
    for name, spec in (held_out.get("sampling") or {}).items():
        _try(f"data.evaluation.sampling.{name}", spec, kind=Sampling)
    for name, spec in (held_out.get("evaluators") or {}).items():
        _try(f"data.evaluation.evaluators.{name}", spec)
    return built["reward"]


def _check_nulls(node: Any, key: str) -> None:
    """Refuse null for an argument whose type has none; the typed parser lets it pass."""
    if not isinstance(node, Mapping):
        return
    part = load(node["class_path"]) if "class_path" in node else None
    inside = node.get("init_args") or {} if part is not None else node
    parameters = constructor_parameters(part) if inspect.isclass(part) else {}
    for name, value in inside.items():
        if value is None and name in parameters:
            kind = str(parameters[name].annotation)
            if parameters[name].default is not None and not any(word in kind for word in _NULL):
                raise ConfigError(f"{key}.{name} must be {kind}, got null ({node['class_path']}); leave it out")
        _check_nulls(value, f"{key}.{name}")


def _specs(node: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """List optimisers and terms of objectives at any depth."""
    if not isinstance(node, Mapping):
        return
    inside = node.get("init_args") or {} if "class_path" in node else node
    if key.endswith("optimizer") and "class_path" in node:
        yield key, node
    for name, value in inside.items():
        if name == "terms" and isinstance(value, Mapping):
            yield from ((f"{key}.terms.{term}", spec) for term, spec in value.items() if isinstance(spec, Mapping))
        elif name not in _MODELS:
            yield from _specs(value, f"{key}.{name}")


def _try(key: str, spec: Any, *first: Any, kind: type | None = None) -> Any:
    if not isinstance(spec, Mapping) or ("class_path" not in spec and kind is None):
        return None
    path = spec.get("class_path") or f"{kind.__module__}.{kind.__qualname__}"  # type: ignore[union-attr]
    arguments = (spec.get("init_args") or {}) if "class_path" in spec else spec
    try:
        return _build({"class_path": path, "init_args": arguments}, *first)
    except Exception as error:
        raise explain_error(error, key, path, arguments) from error


def _build(spec: Mapping[str, Any], *first: Any) -> Any:
    """Build one part: an optimiser with one dummy parameter, a matrix, a schedule with the optimiser `first`."""
    part, arguments = load(spec["class_path"]), spec.get("init_args") or {}
    if issubclass(part, torch.optim.Optimizer):
        return _step(part([torch.nn.Parameter(torch.zeros(1, 1))], **arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning of a schedule that is built before the optimiser's first step
        return part(*first, **build_arguments(part, arguments))


def _step(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Make one step with a dense gradient of 0, as a run makes them: without a closure."""
    name = type(optimizer).__name__
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer.step()
    except NotImplementedError as error:
        raise ConfigError(
            f"model.optimizer: {name} is a base class without a step of its own; name an optimiser"
        ) from error
    except TypeError as error:
        raise ConfigError(
            f"model.optimizer: {name} needs a closure in every step, which a run does not give; use AdamW"
        ) from error
    except RuntimeError as error:
        raise ConfigError(
            f"model.optimizer: {name} cannot make a step with a dense gradient ({error}); use AdamW"
        ) from error
    optimizer.state.clear()
    return optimizer


def _check_schedule(key: str, scheduler: Any, arguments: Mapping[str, Any]) -> None:
    """Refuse a schedule whose learning rates are negative, not finite or all 0 in its first steps, or upside down."""
    low, high = arguments.get("base_lr"), arguments.get("max_lr")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        raise ConfigError(f"{key}: base_lr={low} is larger than max_lr={high}; exchange them")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        return
    rates, largest = [float(group["lr"]) for group in scheduler.optimizer.param_groups], 0.0
    steps = min(_LATE, getattr(scheduler, "total_steps", _LATE))  # what it says of a later step is not used
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(1, steps + 1):
            if wrong := [rate for rate in rates if not 0 <= rate < math.inf]:
                raise ConfigError(f"{key}: the learning rate of step {step} is {wrong[0]:g}; it must be 0 or more")
            largest = max(largest, *rates)
            if step > _STEPS and largest:
                break
            try:
                scheduler.step()
            except ValueError:  # a schedule of a fixed length is at its end
                break
            except Exception as error:
                name = type(scheduler).__name__
                raise ConfigError(
                    f"{key}: {name} cannot make step {step} ({type(error).__name__}: {error}) with {dict(arguments)}; "
                    "change its arguments"
                ) from error
            rates = [float(group["lr"]) for group in scheduler.optimizer.param_groups]
    if not largest and scheduler.optimizer.defaults.get("lr"):
        raise ConfigError(
            f"{key}: the learning rate is 0 in the first {steps} steps, with {dict(arguments)}, so nothing would be "
            "trained; change its arguments, or say so with optimizer.lr=0"
        )


def check_division(model: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    """Refuse `strategy.sequence_parallel` for a policy whose sequences cannot be divided (`Policy.refuse_division`).

    Args:
        model: {class_path, init_args} of the learner.
        trainer: its options.

    Raises:
        ConfigError: with the policy's reason.
    """
    strategy = trainer.get("strategy")
    options = (strategy.get("init_args") or {}) if isinstance(strategy, Mapping) else {}
    processes = options.get("sequence_parallel") or 1
    policy = (model.get("init_args") or {}).get("policy")
    if processes == 1 or not isinstance(policy, Mapping) or "class_path" not in policy:
        return
    try:
        load(policy["class_path"]).refuse_division(policy.get("init_args") or {}, processes)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_settings(model: Mapping[str, Any]) -> None:
    """Refuse settings of a policy that do not fit its architecture (`Policy.refuse_settings`), before it is built.

    Args:
        model: {class_path, init_args} of the learner.

    Raises:
        ConfigError: with the policy's reason.
    """
    policy = (model.get("init_args") or {}).get("policy")
    if not isinstance(policy, Mapping) or "class_path" not in policy:
        return
    try:
        load(policy["class_path"]).refuse_settings(policy.get("init_args") or {})
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_decodes(policy: Any, data: Any) -> None:
    """Refuse a decode of `data.sampling` or `data.evaluation.sampling` that the policy's `check_sampling` refuses."""
    if policy is None or getattr(data, "sampling", None) is None:
        return  # a learner without a policy, or a data module without sampling settings
    decodes = {"data.sampling": data.sampling}
    if getattr(data, "evaluation", None) is not None:
        decodes |= {f"data.evaluation.sampling.{name}": part for name, part in data.evaluation.sampling.items()}
    for key, sampling in decodes.items():
        try:
            policy.check_sampling(sampling)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error


def check_trainable(policy: Any) -> None:
    """Refuse to train a policy that says it cannot be trained (`Policy.not_trainable`)."""
    reason = getattr(policy, "not_trainable", None)
    if reason is not None:
        raise ConfigError(f"model.policy ({type(policy).__name__}) cannot be trained: {reason}")
