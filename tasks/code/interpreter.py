"""Interpreter of syntax trees that counts the operations of a program: the count stands outside of the program.

A program has no way to the interpreter: it reaches the names, attributes, modules and statements that are listed here,
and none of them leads to frames, to attributes by names that are texts, or to texts that become code. Everything else,
such as classes, context managers and other modules, raises `Uncounted`. The file is run as text inside of the sandbox,
so it needs the standard library alone.
"""

import ast
import operator
import sys

from tasks.code.expressions import Expressions, OverBudget
from tasks.code.forms import Uncounted, find_attribute, import_module
from tasks.code.scopes import Scope, bind, find_locals, walk_body

DEPTH = 950  # calls inside one another, about as many as CPython allows
HOST_DEPTH = 40_000  # frames of the interpreter for that many calls

IN_PLACE = {
    **{ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul, ast.Div: operator.itruediv},
    **{ast.FloorDiv: operator.ifloordiv, ast.Mod: operator.imod, ast.Pow: operator.ipow, ast.MatMult: operator.imatmul},
    **{ast.LShift: operator.ilshift, ast.RShift: operator.irshift, ast.BitAnd: operator.iand, ast.BitOr: operator.ior},
    ast.BitXor: operator.ixor,
}
BREAK, CONTINUE = "break", "continue"


class Returned:
    """Value of a return statement."""

    def __init__(self, value):
        self.value = value


class Interpreter(Expressions):
    """Runs programs and counts the nodes of the syntax tree that are evaluated, statements and expressions alike.

    Args:
        budget: operations after which `OverBudget` is raised; a program cannot catch it.
    """

    def __init__(self, budget):
        super().__init__(budget)
        self.depth = 0

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

    # --- statements; those that hold others, or a yield, are generators that yield what the program's generators yield

    def _execute(self, body, scope):
        for statement in body:
            self._tick()
            simple = getattr(self, "_do_" + type(statement).__name__, None)
            if simple is not None:
                signal = simple(statement, scope)
            else:
                signal = yield from self._handler("_step_", statement)(statement, scope)
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

    def _step_Expr(self, node, scope):
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

    def _do_AnnAssign(self, node, scope):
        if node.value is not None:
            self._assign(node.target, self.evaluate(node.value, scope), scope)

    def _do_AugAssign(self, node, scope):
        target, change = node.target, IN_PLACE[type(node.op)]
        if isinstance(target, ast.Name):
            self._set(target.id, change(self._get(target.id, scope), self.evaluate(node.value, scope)), scope)
        elif isinstance(target, ast.Subscript):
            holder, key = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
            holder[key] = change(holder[key], self.evaluate(node.value, scope))
        else:
            raise Uncounted("assignment to an attribute")

    def _do_Return(self, node, scope):
        return Returned(self.evaluate(node.value, scope) if node.value else None)

    def _step_If(self, node, scope):
        return (yield from self._execute(node.body if self.evaluate(node.test, scope) else node.orelse, scope))

    def _step_While(self, node, scope):
        while self.evaluate(node.test, scope):
            signal = yield from self._execute(node.body, scope)
            if signal is BREAK:
                return None
            if signal is not None and signal is not CONTINUE:
                return signal
        return (yield from self._execute(node.orelse, scope))

    def _step_For(self, node, scope):
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

    def _do_Continue(self, node, scope):
        return CONTINUE

    def _do_Pass(self, node, scope):
        pass

    _do_Global = _do_Nonlocal = _do_Pass  # read when the function is defined

    def _do_Assert(self, node, scope):
        if not self.evaluate(node.test, scope):
            raise AssertionError(*([self.evaluate(node.msg, scope)] if node.msg else []))

    def _do_Delete(self, node, scope):
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._get(target.id, scope)
                del self._owner(target.id, scope).values[target.id]
            elif isinstance(target, ast.Subscript):
                del self.evaluate(target.value, scope)[self.evaluate(target.slice, scope)]
            else:
                raise Uncounted("del")

    def _do_Raise(self, node, scope):
        if node.exc is None:
            raise Uncounted("raise without an exception")
        error = self.evaluate(node.exc, scope)
        cause = self.evaluate(node.cause, scope) if node.cause else None
        raise error from cause

    def _step_Try(self, node, scope):
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

    def _do_ImportFrom(self, node, scope):
        module = import_module(node.module)
        for alias in node.names:
            self._set(alias.asname or alias.name, find_attribute(module, alias.name), scope)

    def _do_FunctionDef(self, node, scope):
        function = self._make_function(node, node.body, scope)
        for decorator in reversed(node.decorator_list):
            function = self.evaluate(decorator, scope)(function)
        self._set(node.name, function, scope)

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
