"""Programs that try to change how many of their operations are counted, and ordinary ones; all return sum(x)."""

from tests.tasks.code.code_forms import USUAL

SUM = """
def solve(x):
    {first}
    total = 0
    for v in x:
        total += v
    return total
"""
BY_NAME = """
def lower(frame):
    while frame:
        counter = get(frame, "f_locals").get("self", None) or get(frame, "f_locals").get("counter", None)
        if counter is not None:
            counter.operations = -100000
        frame = get(frame, "f_back")

def generate():
    lower(get(running, "gi_frame"))
    yield

def start():
    global running
    running = generate()
    next(running)
"""
"""A function get(thing, name), which reads an attribute whose name is a text, leads to the driver's counter."""
DIRECT = BY_NAME
for name in ("f_locals", "f_back", "gi_frame"):
    for thing in ("frame", "running"):
        DIRECT = DIRECT.replace(f'get({thing}, "{name}")', f"{thing}.{name}")
COROUTINE = DIRECT.replace("def generate", "async def generate").replace("gi_frame", "cr_frame")
COROUTINE = COROUTINE.replace("    yield\n", "").replace("next(running)", "running.send(None)")
STOP = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Counter'][0]"
    ".count.__globals__['sys'].settrace(None)"
)
"""A text that ends the count where it is executed."""


def _sum(before: str, first: str = "pass") -> str:
    return before + SUM.format(first=first)


HOSTILE = {
    "frame of a generator": (_sum(DIRECT, "start()")),
    "frame of a coroutine": (_sum(COROUTINE, "try:\n        start()\n    except StopIteration:\n        pass")),
    "frame of a traceback": (
        _sum(
            """
class Catch:
    def __enter__(self):
        pass
    def __exit__(self, kind, error, trace):
        found = trace.tb_frame.f_back
        found.f_locals.get("self", found.f_locals.get("counter")).operations = -100000
        return True
""",
            "with Catch():\n        1 / 0",
        )
    ),
    "operator.methodcaller": (
        _sum(
            """
import operator
def get(thing, name):
    return operator.methodcaller("__getattribute__", name)(thing)
"""
            + BY_NAME,
            "start()",
        )
    ),
    "string.Formatter": (
        _sum(
            """
import string
def get(thing, name):
    return string.Formatter().get_field("0." + name, [thing], {})[0]
"""
            + BY_NAME,
            "start()",
        )
    ),
    "functools.update_wrapper": (
        _sum(
            """
import functools
class Box:
    def __setattr__(self, name, value):
        found.append(value)

def get(thing, name):
    global found
    found = []
    functools.update_wrapper(Box(), thing, assigned=[name], updated=[])
    return found[0]
"""
            + BY_NAME,
            "start()",
        )
    ),
    "typing.no_type_check": (
        _sum(
            """
import typing
def get(thing, name):
    found = []
    typing.isinstance = lambda *_: True
    typing.hasattr = lambda value, _: found.append(value)
    typing.dir = lambda _: [name]
    try:
        typing.no_type_check(thing)
    except AttributeError:
        pass
    return found[0]
"""
            + BY_NAME,
            "start()",
        )
    ),
    "class pattern with names": (
        _sum(
            """
def get(thing, name):
    match thing:
        case object(f_locals=value) if name == "f_locals":
            return value
        case object(f_back=value) if name == "f_back":
            return value
        case object(gi_frame=value):
            return value
"""
            + BY_NAME,
            "start()",
        )
    ),
    "class pattern with places": (
        _sum(
            """
class Any(type):
    def __instancecheck__(self, thing):
        return True

def get(thing, name):
    Named = Any("Named", (), {"__match" + "_args__": (name,)})
    match thing:
        case Named(value):
            return value
"""
            + BY_NAME,
            "start()",
        )
    ),
    "annotation that is executed": (
        _sum(
            f"""
import functools
def start():
    @functools.singledispatch
    def f(x):
        pass
    @f.register
    def g(x: "{STOP} or int"):
        pass
""",
            "start()",
        )
    ),
    "fields of a dataclass": (
        _sum(
            f"""
import dataclasses
def start():
    names = {{"__annotations__": {{"x, {STOP}": int}}, "__doc__": "", "x": 0}}
    Pair = dataclasses.dataclass(init=False, repr=False)(type("Pair", (), names))
    Pair() == Pair()
""",
            "start()",
        )
    ),
    "code objects": (_sum("import typing\nCode = typing.types.CodeType\n")),
    "names of the driver": (
        _sum("import re\nre.enum.global_enum(re.enum.Enum('Some', {'find_line': 1}, module='__main__'))\n")
    ),
    "changed module": (_sum("import typing\ntyping.isinstance = lambda *_: True\n")),
    "deleted name of a module": (_sum("import math\ndel math.pi\n")),
    "module changed by copy": (
        _sum(
            """
import copy, math
class Copy:
    def __reduce_ex__(self, protocol):
        return (lambda: math), (), ({"pi": 3}, None)

copy.copy(Copy())
assert math.pi == 3
"""
        )
    ),
    "recursion that ends the count": (
        _sum(
            """
def recurse():
    recurse()

def start():
    try:
        recurse()
    except RecursionError:
        pass
""",
            "start()",
        )
    ),
    "end of the budget that is caught": (
        _sum(
            """
def start():
    try:
        while True:
            pass
    except BaseException:
        pass
""",
            "start()",
        )
    ),
    "attributes set by copy, settrace": (
        _sum(
            """
import copy, functools
class Reach:
    @functools.cached_property
    def f_builtins(self):
        return None

class State:
    def __reduce_ex__(self, protocol):
        return Reach, (), {"f_builtins": start}

def start():
    reached = copy.copy(State()).f_builtins.__globals__["__builtins__"]
    get = reached["__import__"] if isinstance(reached, dict) else reached.__import__
    get("sys").settrace(None)
""",
            "start()",
        )
    ),
    "counter by its class": (
        _sum(
            """
def start():
    for kind in object.__subclasses__():
        if kind.__name__ in ("Interpreter", "Counter"):
            kind._tick = lambda self: None
            kind.operations = property(lambda self: 1, lambda self, value: None)
""",
            "start()",
        )
    ),
    "counter by the garbage collector": (
        _sum(
            """
def start():
    import gc
    for thing in gc.get_objects():
        if hasattr(type(thing), "_tick"):
            thing.operations, thing.budget = -100000, 10**12
""",
            "start()",
        )
    ),
    "counter by the modules": (
        _sum(
            """
import sys
for name, module in list(sys.modules.items()):
    if hasattr(module, "Interpreter"):
        module.Interpreter._tick = lambda self: None
"""
        )
    ),
    "counted line of its own": (
        _sum(
            """
import os
os.write(1, b'["counted", [["returned", ["int", "9"]]], 1]\\n')
"""
        )
    ),
    "lines read back from its output": (
        _sum(
            """
import os
try:
    with open("/proc/self/fd/1", "rb", buffering=0) as said:
        said.read(100000)
    os.write(1, b'["counted", [], 1]\\n')
except OSError:
    pass
"""
        )
    ),
    "another program where it is interpreted": (
        _sum(
            """
try:
    assert sum.__name__
    slow = True
except AttributeError:
    slow = False
""",
            "if slow: [v for v in range(1000)]",
        )
    ),
    "an iterator that is exhausted": (_sum("class Any(type): pass\nhelp = 1\n", "assert isinstance(1, int)")),
}
"""By what they use: the program."""

ORDINARY = {
    "formats": "def solve(x):\n    return int('{:d}'.format(sum(x))) + int(f'{0:>3}') + int('%d' % 0)",
    "generators": "def each(x):\n    yield from x\n\ndef solve(x):\n    return sum(v for v in each(x.copy()))",
    "class": """
class Sum:
    def __init__(self, x):
        self.x = x
    @property
    def total(self):
        return sum(self.x)

def solve(x):
    return Sum(x).total
""",
    "context": """
class Keep:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        return False

def solve(x):
    with Keep():
        return sum(x)
""",
    "patterns": """
def solve(x):
    match x:
        case []:
            return 0
        case [int() as first, *rest]:
            return first + solve(rest)
""",
    "named tuples": """
from collections import namedtuple
from typing import List, NamedTuple
Pair = namedtuple("Pair", "left right")
class Typed(NamedTuple):
    left: int

def solve(x: List[int]) -> int:
    return Pair(Typed(sum(x)).left, 0).left
""",
    "functools": """
import functools
@functools.lru_cache(maxsize=None)
def add(a, b):
    return a + b

def solve(x):
    return functools.reduce(add, sorted(x, key=functools.cmp_to_key(lambda a, b: a - b)), 0)
""",
    "modules": """
import bisect, copy, heapq, itertools, math, operator, re, string
from collections import Counter, defaultdict, deque
from fractions import Fraction

def solve(x):
    y = copy.deepcopy(x)
    heapq.heapify(y)
    assert re.findall("[0-9]", string.digits) and bisect.bisect(sorted(y), 99) == len(x)
    return int(Fraction(math.floor(sum(itertools.starmap(operator.mul, Counter(y).items())))))
""",
    "exceptions": """
def solve(x):
    try:
        return sum(x) if x else x[0]
    except IndexError as error:
        return len(error.args) - 1
""",
    "recursion": "def solve(x):\n    return x[0] + solve(x[1:]) if x else 0\n\nassert solve([1] * 300) == 300",
}
ORDINARY |= USUAL
"""Programs that a model may well write."""
