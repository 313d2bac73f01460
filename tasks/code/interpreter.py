"""Interpreter of syntax trees that counts the operations of a program: the count stands outside of the program.

A program has no way to the interpreter: it reaches the names, attributes, modules and statements that are listed here,
and none of them leads to frames, to attributes by names that are texts, or to texts that become code. Everything else,
such as classes, context managers and other modules, raises `Uncounted`. The file is run as text inside of the sandbox,
so it needs the standard library alone.
"""

import ast
import builtins
import operator
import sys

from tasks.code.forms import BUILTINS, Uncounted, find_attribute, import_module

DEPTH = 950  # calls inside one another, about as many as CPython allows
HOST_DEPTH = 40_000  # frames of the interpreter for that many calls

BINARY = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul},
    **{ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_},
    ast.BitXor: operator.xor,
}
IN_PLACE = {
    **{ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul, ast.Div: operator.itruediv},
    **{ast.FloorDiv: operator.ifloordiv, ast.Mod: operator.imod, ast.Pow: operator.ipow, ast.MatMult: operator.imatmul},
    **{ast.LShift: operator.ilshift, ast.RShift: operator.irshift, ast.BitAnd: operator.iand, ast.BitOr: operator.ior},
    ast.BitXor: operator.ixor,
}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
COMPARE = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
}
BREAK, CONTINUE = "break", "continue"


class OverBudget(BaseException):
    """The program executed more operations than it may."""


class Returned:
    """Value of a return statement."""

    def __init__(self, value):
        self.value = value


class Scope:
    """Variables of a call, of a comprehension, or of the program (`outer` is None)."""

    def __init__(self, names, outer, module=None, outward=()):
        self.names, self.outer, self.values = names, outer, {}
        self.module = module or self
        self.outward = outward  # names declared global or nonlocal, by the scope that they belong to


class Interpreter:
    """Runs programs and counts the nodes of the syntax tree that are evaluated, statements and expressions alike.

    Args:
        budget: operations after which `OverBudget` is raised; a program cannot catch it.
    """

    def __init__(self, budget):
        self.budget, self.operations, self.depth = budget, 0, 0

    def run(self, tree, name, calls):
        """Execute a module's tree, call one of its functions on (arguments, named arguments), and return by call
        ["returned", value] or ["raised", name of the exception].

        Raises Uncounted, OverBudget, and what the program raises outside of the calls.
        """
        limit, scope = sys.getrecursionlimit(), Scope(None, None)
        sys.setrecursionlimit(max(limit, HOST_DEPTH))
        try:
            self._finish(self._execute(tree.body, scope))
            return [self._call(scope.values.get(name), *call) for call in calls]
        finally:
            sys.setrecursionlimit(limit)

    def _call(self, function, arguments, named):
        try:
            return ["returned", function(*arguments, **named)]
        except Exception as error:
            return ["raised", type(error).__name__]

    def _tick(self):
        self.operations += 1
        if self.operations > self.budget:
            raise OverBudget

    # --- statements: generators, which yield what the program's generators yield

    def _execute(self, body, scope):
        for statement in body:
            self._tick()
            handler = self._handler("_do_", statement)
            signal = yield from handler(statement, scope)
            if signal is not None:
                return signal
        return None

    def _finish(self, steps):
        """Run statements without a yield; return their signal."""
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        raise Uncounted("yield")

    def _handler(self, prefix, node):
        handler = getattr(self, prefix + type(node).__name__, None)
        if handler is None:
            raise Uncounted(type(node).__name__)
        return handler

    def _do_Expr(self, node, scope):
        if isinstance(node.value, ast.Yield):
            yield self.evaluate(node.value.value, scope) if node.value.value else None
        elif isinstance(node.value, ast.YieldFrom):
            yield from self.evaluate(node.value.value, scope)
        else:
            self.evaluate(node.value, scope)

    def _do_Assign(self, node, scope):
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self._assign(target, value, scope)
        return None
        yield

    def _do_AnnAssign(self, node, scope):
        if node.value is not None:
            self._assign(node.target, self.evaluate(node.value, scope), scope)
        return None
        yield

    def _do_AugAssign(self, node, scope):
        target, change = node.target, IN_PLACE[type(node.op)]
        if isinstance(target, ast.Name):
            self._set(target.id, change(self._get(target.id, scope), self.evaluate(node.value, scope)), scope)
        elif isinstance(target, ast.Subscript):
            holder, key = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
            holder[key] = change(holder[key], self.evaluate(node.value, scope))
        else:
            raise Uncounted("assignment to an attribute")
        return None
        yield

    def _do_Return(self, node, scope):
        return Returned(self.evaluate(node.value, scope) if node.value else None)
        yield

    def _do_If(self, node, scope):
        return (yield from self._execute(node.body if self.evaluate(node.test, scope) else node.orelse, scope))

    def _do_While(self, node, scope):
        while self.evaluate(node.test, scope):
            signal = yield from self._execute(node.body, scope)
            if signal is BREAK:
                return None
            if signal is not None and signal is not CONTINUE:
                return signal
        return (yield from self._execute(node.orelse, scope))

    def _do_For(self, node, scope):
        for value in self.evaluate(node.iter, scope):
            self._tick()
            self._assign(node.target, value, scope)
            signal = yield from self._execute(node.body, scope)
            if signal is BREAK:
                return None
            if signal is not None and signal is not CONTINUE:
                return signal
        return (yield from self._execute(node.orelse, scope))

    def _do_Break(self, node, scope):
        return BREAK
        yield

    def _do_Continue(self, node, scope):
        return CONTINUE
        yield

    def _do_Pass(self, node, scope):
        return None
        yield

    _do_Global = _do_Nonlocal = _do_Pass  # read when the function is defined

    def _do_Assert(self, node, scope):
        if not self.evaluate(node.test, scope):
            raise AssertionError(*([self.evaluate(node.msg, scope)] if node.msg else []))
        return None
        yield

    def _do_Delete(self, node, scope):
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._get(target.id, scope)
                del self._owner(target.id, scope).values[target.id]
            elif isinstance(target, ast.Subscript):
                del self.evaluate(target.value, scope)[self.evaluate(target.slice, scope)]
            else:
                raise Uncounted("del")
        return None
        yield

    def _do_Raise(self, node, scope):
        if node.exc is None:
            raise Uncounted("raise without an exception")
        error = self.evaluate(node.exc, scope)
        cause = self.evaluate(node.cause, scope) if node.cause else None
        raise error from cause
        yield

    def _do_Try(self, node, scope):
        try:
            try:
                signal = yield from self._execute(node.body, scope)
            except (Uncounted, OverBudget, GeneratorExit):
                raise
            except BaseException as error:
                signal = yield from self._rescue(node, error, scope)
            else:
                if signal is None:
                    signal = yield from self._execute(node.orelse, scope)
        except (Uncounted, OverBudget, GeneratorExit):
            raise
        except BaseException:
            last = yield from self._execute(node.finalbody, scope)
            if last is not None:
                return last
            raise
        last = yield from self._execute(node.finalbody, scope)
        return signal if last is None else last

    def _rescue(self, node, error, scope):
        for handler in node.handlers:
            kind = self.evaluate(handler.type, scope) if handler.type else BaseException
            if isinstance(error, kind):
                if handler.name:
                    self._set(handler.name, error, scope)
                signal = yield from self._execute(handler.body, scope)
                if handler.name:
                    self._owner(handler.name, scope).values.pop(handler.name, None)
                return signal
        raise error

    def _do_Import(self, node, scope):
        for alias in node.names:
            self._set(alias.asname or alias.name, import_module(alias.name), scope)
        return None
        yield

    def _do_ImportFrom(self, node, scope):
        module = import_module(node.module)
        for alias in node.names:
            self._set(alias.asname or alias.name, find_attribute(module, alias.name), scope)
        return None
        yield

    def _do_FunctionDef(self, node, scope):
        function = self._make_function(node, node.body, scope)
        for decorator in reversed(node.decorator_list):
            function = self.evaluate(decorator, scope)(function)
        self._set(node.name, function, scope)
        return None
        yield

    # --- functions

    def _make_function(self, node, body, scope):
        """Return a Python function that runs a definition or a lambda."""
        arguments = node.args
        defaults = [self.evaluate(default, scope) for default in arguments.defaults]
        by_name = {
            argument.arg: self.evaluate(default, scope)
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
            if default is not None
        }
        names, outward = find_locals(body)
        names |= {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
        generates = any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in walk_body(body))

        def run(*values, **named):
            local = Scope(names, scope, scope.module, outward)
            local.values.update(bind(arguments, defaults, by_name, values, named))
            if generates:
                return self._generate(body, local)
            if self.depth >= DEPTH:
                raise RecursionError("maximum recursion depth exceeded")
            self.depth += 1
            try:
                signal = self._finish(self._execute(body, local))
            finally:
                self.depth -= 1
            return signal.value if isinstance(signal, Returned) else None

        return run

    def _generate(self, body, scope):
        signal = yield from self._execute(body, scope)
        return signal.value if isinstance(signal, Returned) else None

    # --- variables

    def _owner(self, name, scope):
        """Return the scope in which an assignment to a name takes place."""
        while scope.names is not None and name not in scope.names:
            kind = scope.outward.get(name) if scope.outward else None
            if kind == "global":
                return scope.module
            scope = scope.outer
        return scope

    def _get(self, name, scope):
        while scope is not None:
            if scope.names is None or name in scope.names:
                if name in scope.values:
                    return scope.values[name]
                if scope.names is not None:
                    raise UnboundLocalError(f"cannot access local variable {name!r}")
            if scope.outward and scope.outward.get(name) == "global":
                scope = scope.module
                continue
            scope = scope.outer
        if name in BUILTINS:
            return BUILTINS[name]
        if hasattr(builtins, name) or name.startswith("__"):
            raise Uncounted(name)
        raise NameError(f"name {name!r} is not defined")

    def _set(self, name, value, scope):
        self._owner(name, scope).values[name] = value

    def _assign(self, target, value, scope):
        if isinstance(target, ast.Name):
            self._set(target.id, value, scope)
        elif isinstance(target, ast.Subscript):
            self.evaluate(target.value, scope)[self.evaluate(target.slice, scope)] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part, item in zip(target.elts, unpack(target.elts, value)):
                self._assign(part.value if isinstance(part, ast.Starred) else part, item, scope)
        else:
            raise Uncounted("assignment to an attribute")

    # --- expressions

    def evaluate(self, node, scope):
        """Return the value of an expression."""
        self._tick()
        return self._handler("_see_", node)(node, scope)

    def _see_Constant(self, node, scope):
        return node.value

    def _see_Name(self, node, scope):
        return self._get(node.id, scope)

    def _see_NamedExpr(self, node, scope):
        value = self.evaluate(node.value, scope)
        self._set(node.target.id, value, scope)
        return value

    def _see_Attribute(self, node, scope):
        return find_attribute(self.evaluate(node.value, scope), node.attr)

    def _see_Subscript(self, node, scope):
        return self.evaluate(node.value, scope)[self.evaluate(node.slice, scope)]

    def _see_Slice(self, node, scope):
        return slice(*(self.evaluate(part, scope) if part else None for part in (node.lower, node.upper, node.step)))

    def _see_BinOp(self, node, scope):
        return BINARY[type(node.op)](self.evaluate(node.left, scope), self.evaluate(node.right, scope))

    def _see_UnaryOp(self, node, scope):
        return UNARY[type(node.op)](self.evaluate(node.operand, scope))

    def _see_BoolOp(self, node, scope):
        ends = isinstance(node.op, ast.Or)
        for part in node.values:
            value = self.evaluate(part, scope)
            if bool(value) == ends:
                return value
        return value

    def _see_Compare(self, node, scope):
        left = self.evaluate(node.left, scope)
        for sign, part in zip(node.ops, node.comparators):
            right = self.evaluate(part, scope)
            result = COMPARE[type(sign)](left, right)
            if not result:
                return result
            left = right
        return result

    def _see_IfExp(self, node, scope):
        return self.evaluate(node.body if self.evaluate(node.test, scope) else node.orelse, scope)

    def _see_Lambda(self, node, scope):
        return self._make_function(node, [ast.Return(node.body)], scope)

    def _see_Call(self, node, scope):
        function = self.evaluate(node.func, scope)
        arguments = self._items(node.args, scope)
        named = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope)
            named.update({keyword.arg: value} if keyword.arg else value)
        return function(*arguments, **named)

    def _items(self, parts, scope):
        values = []
        for part in parts:
            if isinstance(part, ast.Starred):
                values.extend(self.evaluate(part.value, scope))
            else:
                values.append(self.evaluate(part, scope))
        return values

    def _see_List(self, node, scope):
        return self._items(node.elts, scope)

    def _see_Tuple(self, node, scope):
        return tuple(self._items(node.elts, scope))

    def _see_Set(self, node, scope):
        return set(self._items(node.elts, scope))

    def _see_Dict(self, node, scope):
        result = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                result.update(self.evaluate(value, scope))
            else:
                result[self.evaluate(key, scope)] = self.evaluate(value, scope)
        return result

    def _see_JoinedStr(self, node, scope):
        return "".join(self.evaluate(part, scope) for part in node.values)

    def _see_FormattedValue(self, node, scope):
        value = self.evaluate(node.value, scope)
        value = {"s": str, "r": repr, "a": ascii}[chr(node.conversion)](value) if node.conversion > 0 else value
        return format(value, self.evaluate(node.format_spec, scope) if node.format_spec else "")

    def _see_ListComp(self, node, scope):
        return list(self._comprehend(node, scope))

    def _see_SetComp(self, node, scope):
        return set(self._comprehend(node, scope))

    def _see_GeneratorExp(self, node, scope):
        return self._comprehend(node, scope)

    def _see_DictComp(self, node, scope):
        return dict(self._comprehend(node, scope))

    def _comprehend(self, node, scope):
        names = set()
        for part in node.generators:
            names |= find_targets(part.target)
        first = iter(self.evaluate(node.generators[0].iter, scope))  # in the scope outside, and at once
        return self._loop(node, 0, first, Scope(names, scope, scope.module))

    def _loop(self, node, level, values, scope):
        part = node.generators[level]
        if part.is_async:
            raise Uncounted("async")
        for value in values:
            self._assign(part.target, value, scope)
            if not all(self.evaluate(test, scope) for test in part.ifs):
                continue
            if level + 1 < len(node.generators):
                inner = self.evaluate(node.generators[level + 1].iter, scope)
                yield from self._loop(node, level + 1, inner, scope)
            elif isinstance(node, ast.DictComp):
                yield self.evaluate(node.key, scope), self.evaluate(node.value, scope)
            else:
                yield self.evaluate(node.elt, scope)


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
    rest, named = values[len(places) :], dict(named)
    if rest and not arguments.vararg:
        raise TypeError(f"takes {len(places)} positional arguments but {len(values)} were given")
    for name in [*places[len(arguments.posonlyargs) :], *(argument.arg for argument in arguments.kwonlyargs)]:
        if name in named:
            if name in bound:
                raise TypeError(f"got multiple values for argument {name!r}")
            bound[name] = named.pop(name)
    if named and not arguments.kwarg:
        raise TypeError(f"got an unexpected keyword argument {next(iter(named))!r}")
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
        bound[arguments.kwarg.arg] = named
    return bound
