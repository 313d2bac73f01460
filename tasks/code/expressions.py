"""Values of the expressions of a program that is interpreted, and its variables.

The file is run as text inside of the sandbox, so it needs the standard library alone.
"""

import ast
import builtins
import operator

from tasks.code.forms import BUILTINS, Uncounted, find_attribute
from tasks.code.scopes import Scope, find_targets, unpack

BINARY = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul},
    **{ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_},
    ast.BitXor: operator.xor,
}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
COMPARE = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
}


class OverBudget(BaseException):
    """The program executed more operations than it may."""


class Expressions:
    """Evaluates expressions and counts the nodes of the syntax tree.

    Args:
        budget: operations after which `OverBudget` is raised.
    """

    def __init__(self, budget):
        self.budget, self.operations = budget, 0

    def _tick(self):
        self.operations += 1
        if self.operations > self.budget:
            raise OverBudget

    def _handler(self, prefix, node):
        handler = getattr(self, prefix + type(node).__name__, None)
        if handler is None:
            raise Uncounted(type(node).__name__)
        return handler

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
        value = self.evaluate(node.left, scope)
        for sign, part in zip(node.ops, node.comparators):
            other = self.evaluate(part, scope)
            result = COMPARE[type(sign)](value, other)
            if not result:
                return result
            value = other
        return result

    def _see_IfExp(self, node, scope):
        return self.evaluate(node.body if self.evaluate(node.test, scope) else node.orelse, scope)

    def _see_Lambda(self, node, scope):
        return self._make_function(node, [ast.Return(node.body)], scope)

    def _see_Call(self, node, scope):
        function = self.evaluate(node.func, scope)
        arguments = self._items(node.args, scope)
        by_name = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope)
            by_name.update({keyword.arg: value} if keyword.arg else value)
        return function(*arguments, **by_name)

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
