"""Variables of a program that is interpreted: scopes, the names that a body binds, and the values of parameters.

The file is run as text inside of the sandbox, so it needs the standard library alone.
"""

import ast


class Scope:
    """Variables of a call, of a comprehension, or of the program (`outer` is None)."""

    def __init__(self, names, outer, module=None, outward=()):
        self.names, self.outer, self.values = names, outer, {}
        self.module = module or self
        self.outward = outward  # names declared global or nonlocal, by the scope that they belong to


def walk_body(body):
    """Yield the nodes of a function's body without those of functions, lambdas and comprehensions inside of it; names
    that := binds in a comprehension are among them."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
        elif not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.AsyncFunctionDef)):
            waiting.extend(ast.iter_child_nodes(node))


def find_locals(body):
    """Return the names that a function's body binds, and those that it declares global or nonlocal."""
    names, outward = set(), {}
    for node in walk_body(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, ast.NamedExpr):
            names.add(node.target.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) or (isinstance(node, ast.ExceptHandler) and node.name):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outward.update(dict.fromkeys(node.names, type(node).__name__.lower()))
    return names - set(outward), outward


def find_targets(node):
    """Return the names that the target of a loop binds."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def unpack(targets, value):
    """Return the values of several targets; a starred one takes a list. Raises ValueError as Python does."""
    values = list(value)
    stars = [place for place, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if not stars:
        if len(values) != len(targets):
            raise ValueError(f"expected {len(targets)} values to unpack, got {len(values)}")
        return values
    start, after = stars[0], len(targets) - stars[0] - 1
    if len(values) < start + after:
        raise ValueError(f"expected at least {start + after} values to unpack, got {len(values)}")
    end = len(values) - after
    return [*values[:start], values[start:end], *values[end:]]


def bind(arguments, defaults, by_name, values, named):
    """Return the values of a function's parameters. Raises TypeError as Python does."""
    places = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    bound = dict(zip(places, values))
    rest, keywords = values[len(places) :], dict(named)
    if rest and not arguments.vararg:
        raise TypeError(f"takes {len(places)} positional arguments but {len(values)} were given")
    for name in [*places[len(arguments.posonlyargs) :], *(argument.arg for argument in arguments.kwonlyargs)]:
        if name in keywords:
            if name in bound:
                raise TypeError(f"got multiple values for argument {name!r}")
            bound[name] = keywords.pop(name)
    if keywords and not arguments.kwarg:
        raise TypeError(f"got an unexpected keyword argument {next(iter(keywords))!r}")
    for name, default in zip(places[len(places) - len(defaults) :], defaults):
        bound.setdefault(name, default)
    for name, default in by_name.items():
        bound.setdefault(name, default)
    missing = [n for n in (*places, *(argument.arg for argument in arguments.kwonlyargs)) if n not in bound]
    if missing:
        raise TypeError(f"missing required argument {missing[0]!r}")
    if arguments.vararg:
        bound[arguments.vararg.arg] = rest
    if arguments.kwarg:
        bound[arguments.kwarg.arg] = keywords
    return bound
