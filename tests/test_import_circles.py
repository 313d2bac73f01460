"""Modules of mmrl that import each other: those that are left are named here, and a new one fails."""

from __future__ import annotations

import ast

from tests.test_layers import FILES, module, tree, within

# late imports and those under `if TYPE_CHECKING` included; a circle is all modules that reach each other
CIRCLES = {
    # the context of an iteration holds the engine and the policy, whose methods take types of core
    frozenset(
        {
            *("mmrl.core.groups", "mmrl.core.types", "mmrl.distributed.parallel", "mmrl.distributed.sharding"),
            *("mmrl.engines.base", "mmrl.policies.base"),
        }
    ),
    # Lightning's data module and learner read each other
    frozenset({"mmrl.data.collector", "mmrl.data.rollout_data", "mmrl.learners.base"}),
    # run.evaluate() and run.load_policy() call functions that take a run
    frozenset({"mmrl.api.evaluation", "mmrl.api.loaded_policy", "mmrl.api.run"}),
}


def list_imports() -> dict[str, set[str]]:
    """Modules of mmrl that each of them imports anywhere; the package's own lazy names are left out."""
    names = {module(file): file for file in FILES if within(module(file), "mmrl") and module(file) != "mmrl"}
    edges: dict[str, set[str]] = {name: set() for name in names}
    for name, file in names.items():
        for node in ast.walk(tree(file)):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{part}" for part in imported]
                imported = [part if part in names else str(node.module) for part in full]
            edges[name].update(part for part in imported if part in names and part != name)
    return edges


def find_circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of modules that reach each other."""
    reached = {name: reach(edges, name) for name in edges}
    return {
        frozenset(other for other in targets if name in reached[other])
        for name, targets in reached.items()
        if name in targets
    }


def reach(edges: dict[str, set[str]], start: str) -> set[str]:
    """All modules that a module imports, directly or through others."""
    result: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - result
        result |= new
        waiting.extend(new)
    return result


def test_no_more_modules_import_each_other_than_are_named():
    circles = find_circles(list_imports())
    assert len(circles) == 3 and circles == CIRCLES, [sorted(circle) for circle in circles ^ CIRCLES]


def test_a_circle_is_found_through_several_modules():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert find_circles(edges) == {frozenset("abc")}
