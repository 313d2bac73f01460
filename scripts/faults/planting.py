"""Faults of one source file: signs, exponents, denominators, bounds, masks, branches and detaches, one at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

SWAPPED = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq}
SWAPPED |= {new: old for old, new in SWAPPED.items()}
RENAMED = {"min": "max", "amin": "amax", "minimum": "maximum", "sum": "mean", "any": "all"}
RENAMED |= {new: old for old, new in RENAMED.items()}
DROPPED = {"detach", "square", "sqrt", "abs", "exp", "log"}  # x.square() becomes x
MASKS = ("mask", "counted", "valid", "usable")
DECLARED = ("__post_init__", "reads", "writes", "needs")
DRAWS = ("random", "uniform", "rand", "rand_like")  # a draw from [0, 1) equals a bound with probability 2^-24 or less
DETACH = "__detach__"  # a global of the module: (value, number of the fault) to the value without its gradient
REACH = "__reach__"  # a global of the module that is called with the line of each statement before it runs

Place = tuple[ast.AST, str, int | None]  # node, its field, and the index where the field is a list


@dataclass(frozen=True)
class Fault:
    """One change of one expression in a function. `detaches`: cuts a gradient, a fault only where there is one."""

    function: str
    line: int
    statement: int  # line of the statement; a test that does not run it cannot notice
    change: str  # "x + y -> x - y", and " [2]" where the function has it a second time
    detaches: bool
    place: Place
    old: ast.expr
    new: ast.expr

    def plant(self) -> None:
        _put(self.place, self.new)

    def remove(self) -> None:
        _put(self.place, self.old)


def list_faults(tree: ast.Module) -> list[Fault]:
    """All faults in the functions of a module. Not in checks of arguments, `__post_init__` and `if ...: raise`.

    Nor in what a part declares: `reads`, `writes` and `needs`, which the wiring of columns checks.
    """
    faults: list[Fault] = []
    for name, function in _functions(tree):
        for place, node, statement in [pair for part in function.body for pair in _expressions(part, part.lineno)]:
            detached = [_call(DETACH, node, ast.Constant(len(faults)))] if _is_assigned(place) else []
            detached = [] if function.name == "metrics" else detached  # what is logged needs no gradient
            for new in detached + list(_changes(node, place)):
                ast.fix_missing_locations(ast.copy_location(new, node))
                detaches = new in detached
                change = f"{ast.unparse(node)} -> {'without gradient' if detaches else ast.unparse(new)}"
                same = sum((fault.function, fault.change.split(" [")[0]) == (name, change) for fault in faults)
                change += f" [{same + 1}]" if same else ""
                faults.append(Fault(name, node.lineno, statement, change, detaches, place, node, new))
    return faults


def mark_statements(tree: ast.Module) -> ast.Module:
    """A copy of the module whose functions call `REACH` with the line of each statement before they run it."""
    tree = copy.deepcopy(tree)
    for _, function in _functions(tree):
        for node in list(ast.walk(function)):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    marks = [ast.Expr(_call(REACH, ast.Constant(part.lineno))) for part in block]
                    block[:] = [part for pair in zip(marks, block) for part in pair]
    return ast.fix_missing_locations(tree)


def _put(place: Place, node: ast.expr) -> None:
    owner, name, index = place
    if index is None:
        setattr(owner, name, node)
    else:
        getattr(owner, name)[index] = node


def _functions(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef) and child.name not in DECLARED:
            yield f"{prefix}{child.name}", child


def _expressions(owner: ast.AST, line: int) -> Iterator[tuple[Place, ast.expr, int]]:
    """(place, expression, line of its statement) of every expression that runs."""
    if isinstance(owner, (ast.Raise, ast.JoinedStr, ast.arguments)):
        return
    if isinstance(owner, ast.If) and any(isinstance(part, ast.Raise) for part in owner.body):
        return
    for name, value in ast.iter_fields(owner):
        if name in ("decorator_list", "annotation", "returns"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.expr):
                yield (owner, name, index), child, line
            if isinstance(child, ast.AST):
                yield from _expressions(child, child.lineno if isinstance(child, ast.stmt) else line)


def _changes(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    owner, name, _ = place
    if isinstance(node, ast.BinOp) and not _is_text(node) and not _is_seed_range(node, owner, name):
        yield from _arithmetic(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED and not _is_draw(node):
        yield ast.Compare(node.left, [SWAPPED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):  # one condition less
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.Call):
        yield from _changes_of_call(node)
    if name == "ifs":  # a comprehension without its filter
        yield ast.Constant(True)
    if (type(owner), name) in ((ast.Call, "args"), (ast.Subscript, "slice")) and _is_mask(node):
        yield ast.BinOp(node, ast.BitOr(), ast.Constant(True))


def _arithmetic(node: ast.BinOp) -> Iterator[ast.expr]:
    if type(node.op) in SWAPPED:
        yield ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
    elif isinstance(node.op, ast.Pow):
        yield ast.BinOp(node.left, ast.Pow(), ast.BinOp(node.right, ast.Add(), ast.Constant(1)))
    elif isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        yield node.left
        yield node.right


def _changes_of_call(node: ast.Call) -> Iterator[ast.expr]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute) and not _is_module(function.value):
        bounds = [(None, value) for value in node.args] + [(word.arg, word.value) for word in node.keywords]
        if name in ("clamp", "clip"):  # one bound less
            for index in range(len(bounds)):
                rest = [ast.keyword(word or ("min", "max")[n], v) for n, (word, v) in enumerate(bounds) if n != index]
                yield ast.Call(function, [], rest) if rest else function.value
        elif name in DROPPED:
            yield function.value
    if name in RENAMED and isinstance(function, ast.Attribute):
        yield ast.Call(ast.Attribute(function.value, RENAMED[name], ast.Load()), node.args, node.keywords)
    elif name in ("min", "max", "any", "all"):
        yield ast.Call(ast.Name(RENAMED[name], ast.Load()), node.args, node.keywords)
    elif name == "where" and len(node.args) == 3:
        yield ast.Call(function, [node.args[0], node.args[2], node.args[1]], node.keywords)


def _call(function: str, *values: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), list(values), [])


def _is_assigned(place: Place) -> bool:
    return isinstance(place[0], (ast.Assign, ast.AnnAssign)) and place[1] == "value"


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operand is a string, a list or a tuple as it is written."""
    sides = (node.left, node.right)
    return any(isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)) for side in sides) or any(
        isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)) for side in sides
    )


def _is_draw(node: ast.Compare) -> bool:
    """Whether a side is a uniform draw, as in rng.random() < p, so that < and <= are the same event."""
    for side in (node.left, *node.comparators):
        while isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute):
            if side.func.attr in DRAWS:
                return True
            side = side.func.value
    return False


def _is_seed_range(node: ast.BinOp, owner: ast.AST, name: str) -> bool:
    """Whether the node is the 2**63 of seed % 2**63: another range is another stream of the same draws."""
    is_modulus = isinstance(owner, ast.BinOp) and isinstance(owner.op, ast.Mod) and name == "right"
    return is_modulus and isinstance(node.op, ast.Pow) and ast.unparse(node) in ("2 ** 63", "2 ** 32")


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "math", "re")


def _is_mask(node: ast.expr) -> bool:
    """Whether the expression is a mask by its name, or any/all over one."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("any", "all")
    key = node.slice if isinstance(node, ast.Subscript) else None
    name = node.id if isinstance(node, ast.Name) else getattr(key, "value", "")
    return isinstance(name, str) and any(word in name for word in MASKS)
