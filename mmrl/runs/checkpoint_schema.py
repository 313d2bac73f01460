"""What a checkpoint's plain data may be: a tree of bounded size, whose entries have the types that Lightning writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

DEPTH, NODES = 100, 10**7
"""A run's state is some tens of levels deep and has some ten thousands of values."""
_CONTAINERS = (dict, list, tuple, set, frozenset)


def find_violation(checkpoint: Any) -> str | None:
    """Describe what is wrong with a checkpoint's content; None for a right one.

    Args:
        checkpoint: as it was read, before anything uses it.
    """
    return find_bad_tree(checkpoint) or _find_bad_entry(checkpoint)


def find_bad_tree(root: Any) -> str | None:
    """Describe a tree that contains itself, is too deep or too large; None for others. Nothing is recursive here.

    Args:
        root: nested dictionaries, lists, tuples and sets; a container that stands in several places counts in each.
    """
    sizes: dict[int, int] = {}  # of the finished containers, by identity
    open_ids: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if not isinstance(node, _CONTAINERS):
            continue
        inside = _children(node)
        if is_done:
            open_ids.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in inside)
            if sizes[id(node)] > NODES:
                return f"it has more than {NODES:,} values"
            continue
        if id(node) in sizes:
            continue
        if id(node) in open_ids:
            return "a list or dictionary in it contains itself"
        open_ids.add(id(node))
        if len(open_ids) > DEPTH:
            return f"it is nested more than {DEPTH} levels deep"
        stack.append((node, True))
        stack += [(child, False) for child in inside if isinstance(child, _CONTAINERS)]
    return None


def _children(node: Any) -> list[Any]:
    return [*node.keys(), *node.values()] if isinstance(node, dict) else list(node)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_optimizer(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("state"), Mapping):
        return False
    groups = value.get("param_groups")
    return isinstance(groups, list) and bool(groups) and all(_is_group(group) for group in groups)


def _is_group(value: Any) -> bool:
    return _is_state(value) and isinstance(value.get("params"), list)


def _is_loop(value: Any) -> bool:
    """Whether a loop's entries are states and progress: numbers, at any depth."""
    nodes = [value]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Mapping):
            nodes += node.values()
        elif not (node is None or isinstance(node, (bool, int, float, Tensor))):
            return False
    return _is_state(value) and all(isinstance(part, Mapping) for part in value.values())


def _is_loops(value: Any) -> bool:
    return _is_state(value) and all(map(_is_loop, value.values()))


def has_progress(checkpoint: Mapping[str, Any]) -> bool:
    """Whether the loops of a checkpoint have the number of the next iteration, without which a run begins again."""
    value = checkpoint.get("loops") or {}
    progress = (value.get("fit_loop") or {}).get("epoch_progress") or {}
    counts = progress.get("current") if isinstance(progress, Mapping) else None
    names = ("ready", "started", "processed", "completed")
    return isinstance(counts, Mapping) and all(_is_count(counts.get(name)) for name in names)


_LISTED = ("rollout",)
_NAMED = ("schedules", "annotators", "rows", "start", "curriculum", "transforms", "empty")


def _is_data(value: Any) -> bool:
    """Whether the state of a data module has an iteration and states by name."""
    return (
        _is_state(value)
        and _is_count(value.get("iteration", 0))
        and all(isinstance(value[name], list) and all(map(_is_state, value[name])) for name in _LISTED if name in value)
        and all(isinstance(value[name], Mapping) for name in _NAMED if name in value)
    )


_ENTRIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "epoch": (_is_count, "a number from 0 on"),
    "global_step": (_is_count, "a number from 0 on"),
    "state_dict": (_is_state, "weights by name"),
    "loops": (_is_loops, "the progress of Lightning's loops"),
    "callbacks": (lambda v: isinstance(v, Mapping) and all(map(_is_state, v.values())), "states of callbacks by name"),
    "optimizer_states": (lambda v: isinstance(v, list) and all(map(_is_optimizer, v)), "states of optimisers"),
    "lr_schedulers": (lambda v: isinstance(v, list) and all(map(_is_state, v)), "states of schedules"),
    "policy_contract": (_is_state, "entries by name"),
    "pytorch-lightning_version": (lambda v: isinstance(v, str), "a text"),
    "RolloutData": (_is_data, "entries by name"),
    "AsyncRolloutData": (_is_data, "entries by name"),
    "ReplayData": (_is_data, "entries by name"),
}
"""By name: whether a value is right, and what it must be."""


def _find_bad_entry(checkpoint: Any) -> str | None:
    if not isinstance(checkpoint, Mapping):
        return None
    for name, (is_right, kind) in _ENTRIES.items():
        if name in checkpoint and not is_right(checkpoint[name]):
            return f"its {name} must be {kind}, is {type(checkpoint[name]).__name__} of other values"
    if wrong := [name for name in checkpoint if not isinstance(name, str)]:
        return f"its entry {wrong[0]!r:.80} has no name"
    return None
