"""Shard the weights of a policy (FSDP2), gather them for sampling and scoring, and collect them to save them.

Sharded weights are gathered block by block in every call of the network, by all processes at once, so that all
processes must call it equally often. In the learn step they do. While they sample, score and evaluate they do not:
completions end at different tokens and processes have different numbers of rows. The weights are therefore gathered
once for these phases (`gather_weights`), and calls of the network communicate nothing.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from mmrl.distributed.first_process import receive_weights, take_weights
from mmrl.distributed.thread_group import refuse_thread

if TYPE_CHECKING:
    from mmrl.policies.base import Policy

_plain: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # sharded policy -> its copy without weights
_shares_with: WeakKeyDictionary[nn.Module, list[nn.Module]] = WeakKeyDictionary()  # and those whose layers it has


def shard(policy: Policy, mesh: Any, precision: MixedPrecisionPolicy | None = None) -> None:
    """Shard every repeated block of a policy, and then the rest of it, over a mesh. Collective.

    The weights are those of the first process; the policies of the others may be on the meta device. Layers that are
    sharded already, as those that a reference shares with the policy, are left as they are.

    Modules that `forward` may leave out, such as the image encoder for rows without images, belong to the rest, whose
    weights are gathered in every call.

    Args:
        policy: its parameters become shards.
        mesh: of one dimension, or of two: replicas and shards.
        precision: in which weights are gathered and gradients are summed.
    """
    precision = precision or MixedPrecisionPolicy(cast_forward_inputs=False)
    shared = {parameter for parameter in policy.parameters() if isinstance(parameter, DTensor)}
    _shares_with[policy] = [other for other in _plain if shared & set(other.parameters())]
    _plain[policy] = _copy_without_weights(policy)
    weights = take_weights(policy)
    optional = {module for each in policy.optional_modules() for module in each.modules()}
    for block in _blocks(policy, optional):
        _shard_by_dtype(block, mesh, precision, shared)
    # columns of the batch, such as log-probs, keep their precision
    root = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype, cast_forward_inputs=False)
    # outputs are not changed in place
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view")
    name = type(policy).__name__
    _shard_by_dtype(policy, mesh, root, shared)
    type(policy).__name__ = name  # contracts and saved policies name the class, which torch replaces
    receive_weights(policy, weights, mesh.device_type)
    if optional:
        policy.set_reduce_scatter_unused_params(True)  # type: ignore[attr-defined]
    policy.one_pass = True


def is_sharded(policy: nn.Module) -> bool:
    """Whether the policy's weights are sharded."""
    return policy in _plain


@contextmanager
def gather_weights(*models: nn.Module) -> Iterator[None]:
    """Gather the sharded weights of models on every process inside the context. Collective; for use without gradient.

    Calls of the network inside do not communicate, so that each process may make as many as it needs.
    """
    selected = [model for model in models if is_sharded(model)]
    sharded = list(dict.fromkeys(part for model in selected for part in (*_shares_with[model], model)))
    if sharded:
        refuse_thread("gathering sharded weights")
    for model in sharded:
        _gather(model)
    try:
        for model in sharded:
            model.measure_network()  # type: ignore[operator]
        yield
    finally:
        for model in sharded:
            _release(model)


@contextmanager
def collect_weights(policy: Any) -> Iterator[Any]:
    """Yield the policy without shards, to save it: on rank 0 a copy in host memory, on other ranks None. Collective.

    A policy that is not sharded is yielded itself, on every rank.
    """
    if not is_sharded(policy):
        yield policy
        return
    refuse_thread("collecting sharded weights")
    plain, first = _plain[policy], torch.distributed.get_rank() == 0
    _take_buffers(policy, plain)
    whole: dict[int, nn.Parameter] = {}  # by the parameter without memory, so that tied weights stay tied
    for parameter, placeholder in zip(policy.parameters(), plain.parameters(), strict=True):
        value = _whole(parameter)  # one parameter at a time
        if first:
            whole[id(placeholder)] = nn.Parameter(value.cpu(), parameter.requires_grad)
    with _fill(plain, whole):
        yield plain if first else None


@torch.no_grad()
def gather_blocks(policy: Any) -> Iterator[Any]:
    """Yield the policy without shards once for each block, whose weights are whole; all others are on the meta device.

    Collective: every rank must iterate to the end. The blocks are the repeated ones, and the rest of the policy. A
    policy that is not sharded is yielded itself, once.
    """
    if not is_sharded(policy):
        yield policy
        return
    refuse_thread("gathering sharded weights")
    plain = _plain[policy]
    _take_buffers(policy, plain)
    owners = {
        id(placeholder): number
        for number, block in enumerate(_blocks(plain, set()))
        for placeholder in block.parameters()
    }
    parts: dict[int, list[tuple[nn.Parameter, nn.Parameter]]] = {}
    for source, placeholder in zip(policy.parameters(), plain.parameters(), strict=True):
        parts.setdefault(owners.get(id(placeholder), -1), []).append((source, placeholder))
    for part in parts.values():
        whole = {id(placeholder): nn.Parameter(_whole(source), source.requires_grad) for source, placeholder in part}
        with _fill(plain, whole):
            yield plain


def whole_weights(policy: nn.Module) -> AbstractContextManager:
    """Return a context in which a sharded policy's weights are whole. Collective, unless they are gathered already."""
    in_shards = any(isinstance(parameter, DTensor) for parameter in policy.parameters())
    return gather_weights(policy) if in_shards else nullcontext()


@torch.no_grad()
def copy_whole(policy: Any, frozen_from: Any = None) -> Any:
    """Copy a sharded policy with whole weights, in the precision of its forward pass, on every process.

    Calls of the copy communicate nothing. Collective, unless the policy's weights are gathered already.

    Args:
        policy: sharded.
        frozen_from: an earlier copy, whose weights that are not trained are shared.
    """
    plain, whole = _plain[policy], {}
    with whole_weights(policy):
        _take_buffers(policy, plain)
        sources, placeholders = list(policy.parameters()), list(plain.parameters())
        earlier = [None] * len(sources) if frozen_from is None else list(frozen_from.parameters())
        for source, placeholder, frozen in zip(sources, placeholders, earlier, strict=True):
            shared = frozen is not None and not (frozen.requires_grad or source.requires_grad)
            copied = frozen if shared else nn.Parameter(source.detach().clone(), source.requires_grad)
            whole[id(placeholder)] = copied
        return copy.deepcopy(plain, whole)


def without_weights(policy: Any) -> Any:
    """Return the policy's modules without shards and without memory; a policy that is not sharded itself."""
    return _plain.get(policy, policy)


def _take_buffers(policy: nn.Module, plain: nn.Module) -> None:
    """Give the copy without shards the policy's present buffers, which are not sharded."""
    for source, target in zip(policy.modules(), plain.modules(), strict=True):
        target._buffers.update({name: buffer for name, buffer in source._buffers.items() if buffer is not None})


def _whole(parameter: nn.Parameter) -> torch.Tensor:
    value = parameter.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


@contextmanager
def _fill(plain: Any, whole: dict[int, nn.Parameter]) -> Iterator[None]:
    """Replace parameters inside the context, under each of their names.

    Args:
        whole: by the id of the parameter without memory.
    """
    places = [(module, name) for module in plain.modules() for name, p in module._parameters.items() if p is not None]
    empty = [module._parameters[name] for module, name in places]
    for (module, name), placeholder in zip(places, empty):
        module._parameters[name] = whole.get(id(placeholder), placeholder)
    try:
        yield
    finally:
        for (module, name), placeholder in zip(places, empty):
            module._parameters[name] = placeholder


def _copy_without_weights(policy: Policy) -> Policy:
    """Copy the modules, whose parameters have shapes but no memory."""
    return copy.deepcopy(policy, {id(p): nn.Parameter(_empty(p), p.requires_grad) for p in policy.parameters()})


def _empty(parameter: Any) -> torch.Tensor:
    return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")


def _blocks(module: nn.Module, optional: set[nn.Module]) -> Iterator[nn.Module]:
    """Yield the outermost repeated blocks: the items of module lists."""
    for child in module.children():
        if child in optional:
            continue
        if isinstance(child, nn.ModuleList):
            yield from (block for block in child if next(block.parameters(), None) is not None)
        else:
            yield from _blocks(child, optional)


def _shard_by_dtype(module: nn.Module, mesh: Any, precision: MixedPrecisionPolicy, ignored: set[nn.Parameter]) -> None:
    """Shard a module; parts that train another dtype than most of it are sharded on their own, as torch requires."""
    trained = Counter(p.dtype for p in module.parameters() if p.requires_grad and not isinstance(p, DTensor))
    for dtype, _ in trained.most_common()[1:]:
        for part in module.modules():
            if any(p.dtype == dtype and p.requires_grad for p in part.parameters(recurse=False)):
                fully_shard(part, mesh=mesh, mp_policy=precision, ignored_params=ignored)
    fully_shard(module, mesh=mesh, mp_policy=precision, ignored_params=ignored)


def _sharded_modules(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _gather(model: Any) -> None:
    model._get_fsdp_state()._lazy_init()  # otherwise the first block that is called becomes the root
    for module in _sharded_modules(model):
        module.unshard()
    model.set_reshard_after_forward(False)
    model.one_pass = False


def _release(model: Any) -> None:
    model.set_reshard_after_forward(True)
    model.set_reshard_after_forward(False, recurse=False)  # the backward pass needs the root's weights first
    # torch records the order of calls and fetches weights ahead by it in the next backward pass, and processes have
    # made different calls; the reset also reshards
    model.reset_iter_state()
    model.one_pass = True
