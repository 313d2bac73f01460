"""What the sandbox executes: call a candidate on inputs, record a test's calls, and replay a candidate's results.

The file is run as text inside of the sandbox, so it needs the standard library and rules.py alone. No expected result
is ever in the process of a candidate: it is called on inputs, and what it returns is compared outside of it.
"""

import ast
import builtins
import contextlib
import json
import random
import sys
import types

from tasks.code.expressions import OverBudget
from tasks.code.forms import Uncounted
from tasks.code.interpreter import Interpreter

PROGRAM = "<program>"


class Unwritable(Exception):
    """A value of a type that no test compares."""


def encode(value):
    """Encode a plain value as JSON that keeps types: [type, content]. Values of subclasses are refused."""
    kind = type(value)
    if value is None:
        return ["None", 0]
    if kind in (bool, str):
        return [kind.__name__, value]
    if kind in (int, float, complex, bytes):
        return [kind.__name__, repr(value)]
    if kind in (list, tuple):
        return [kind.__name__, [encode(item) for item in value]]
    if kind in (set, frozenset):
        return [kind.__name__, sorted((encode(item) for item in value), key=json.dumps)]
    if kind is dict:
        return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
    raise Unwritable(f"a value of type {kind.__name__}")


def decode(coded):
    """Decode what `encode` wrote. Raises ValueError for anything else."""
    try:
        kind, content = coded
        if kind == "None":
            return None
        if kind in ("bool", "str") and type(content) is {"bool": bool, "str": str}[kind]:
            return content
        if kind in ("int", "float", "complex"):
            return {"int": int, "float": float, "complex": complex}[kind](content)
        if kind == "bytes":
            return ast.literal_eval(content)
        if kind in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, kind)(decode(item) for item in content)
        if kind == "dict":
            return {decode(key): decode(item) for key, item in content}
    except (TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("not an encoded value") from error
    raise ValueError("not an encoded value")


class LineTrace:
    """Lines of the program that were executed, by Python's tracing; a program can end it."""

    def __init__(self):
        self.lines = set()

    def run(self, function, *arguments, **named):
        """Call a function and note the lines."""
        try:
            sys.settrace(self.trace)
            return function(*arguments, **named)
        finally:
            sys.settrace(None)

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename != PROGRAM:
            return None
        if event == "line":
            self.lines.add(frame.f_lineno)
        return self.trace


class Sink:
    """Standard output of a candidate: what it prints is dropped."""

    encoding, errors = "utf-8", "strict"

    def write(self, text):
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False


def enter_module():
    """Return the variables of a new module, which classes of a program find by its name, as dataclasses do."""
    module = sys.modules["program"] = types.ModuleType("program")
    return vars(module)


def find_line(error):
    """Return the line of the program at which an exception was raised."""
    line, at = 0, error.__traceback__
    while at is not None:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == PROGRAM else line
        at = at.tb_next
    return line


def count_candidate(job, tree):
    """Interpret a program on its calls: ["counted", results, operations], ["uncounted", form, 0], or ["timed_out", "",
    0] over its budget. A program that is interpreted cannot change the count; what it returns is encoded as below."""
    counter = Interpreter(job["budget"])
    try:
        results = counter.run(tree, job["name"], [decode_call(call) for call in job["calls"]])
        return ["counted", [[word, encode(value)] for word, value in results], counter.operations]
    except OverBudget:
        return ["timed_out", "", 0]
    except Uncounted as error:
        return ["uncounted", str(error), 0]
    except BaseException as error:
        return ["uncounted", type(error).__name__, 0]


def decode_call(call):
    """Decode the arguments of a call, by place and by name."""
    arguments, by_name = call
    return [decode(one) for one in arguments], {key: decode(one) for key, one in by_name.items()}


def run_candidate(job):
    """Call the function of a program on each input, and print a line of JSON for the program and for each call.

    With `count` the first line is that of `count_candidate`. Everything after it is said by a process in which the
    program runs, so it may be the program's own invention.
    """
    out, dumps = sys.stdout, json.dumps

    def say(*words):
        out.write(dumps(words) + "\n")
        out.flush()

    lines = LineTrace()
    run = lines.run if job["count"] else lambda function, *arguments, **by_name: function(*arguments, **by_name)
    sys.stdout = sys.stderr = Sink()
    names = enter_module()
    try:
        tree = ast.parse(job["program"], PROGRAM)
        code = compile(tree, PROGRAM, "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        say("syntax_error", type(error).__name__, getattr(error, "lineno", 0) or 0)
        return
    if job["count"]:
        counted = count_candidate(job, tree)
        say(*counted)
        if counted[0] == "timed_out":
            return
    try:
        run(exec, code, names)
    except BaseException as error:
        say("exited" if isinstance(error, SystemExit) else "raised", type(error).__name__, find_line(error))
        return
    function = names.get(job["name"])
    if not callable(function):
        say("no_function", "", 0)
        return
    say("loaded", "", 0)
    random.seed(0)
    for call in job["calls"]:
        arguments, by_name = decode_call(call)
        try:
            say("returned", encode(run(function, *arguments, **by_name)), 0)
        except SystemExit as error:
            say("exited", "SystemExit", find_line(error))
        except BaseException as error:
            say("raised", type(error).__name__, find_line(error))
    if job["count"]:
        say("executed", sorted(lines.lines), 0)


def record_calls(job):
    """Run a test with the right solution; print the inputs of its calls, and how many of its assertions held."""
    names = enter_module()
    exec(compile(job["program"], PROGRAM, "exec"), names)
    right, calls = names[job["name"]], []

    def candidate(*arguments, **named):
        calls.append([[encode(one) for one in arguments], {key: encode(one) for key, one in named.items()}])
        return right(*arguments, **named)

    print(json.dumps([calls, run_test(job, candidate)]))


def replay_results(jobs):
    """Run tests on results that candidates returned elsewhere; print how many assertions of each held, of how many."""
    print(json.dumps([replay(job) for job in jobs]))


def replay(job):
    """Run one test on the results of one candidate."""
    pairs = iter(zip(job["calls"], job["results"]))

    def candidate(*arguments, **by_name):
        call, result = next(pairs, (None, None))
        if call != [[encode(one) for one in arguments], {key: encode(one) for key, one in by_name.items()}]:
            raise RuntimeError("the test made another call than with the right solution")
        if result[0] == "returned":
            return decode(result[1])
        kind = getattr(builtins, str(result[1]), None)
        raise kind() if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(result[1])

    return run_test(job, candidate)


class CountAssertions(ast.NodeTransformer):
    """Turn each assertion into a call that counts it, so that a test goes on after one that does not hold."""

    def visit_Assert(self, node):
        test = ast.Lambda(ast.arguments([], [], None, [], [], None, []), node.test)
        return ast.copy_location(ast.Expr(ast.Call(ast.Name("_count", ast.Load()), [test], [])), node)


def run_test(job, candidate):
    """Run check(candidate) of a test; return the assertions that held, all that were reached, and the error or ""."""
    outcomes = []

    def count(test):
        outcomes.append(False)
        with contextlib.suppress(Exception):
            outcomes[-1] = bool(test())

    names = enter_module()
    names["_count"] = count
    random.seed(0)
    try:
        exec(compile(job["context"], PROGRAM, "exec"), names)
        tree = ast.fix_missing_locations(CountAssertions().visit(ast.parse(job["test"])))
        exec(compile(tree, "<test>", "exec"), names)
        names["check"](candidate)
    except Exception as error:
        return [sum(outcomes), len(outcomes), type(error).__name__]
    return [sum(outcomes), len(outcomes), ""]
