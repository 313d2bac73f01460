"""Forms that programs of models usually have; every program returns sum(x)."""

USUAL = {
    "private attribute": """
class A:
    def __init__(self, x):
        self._x = x

def solve(x):
    return sum(A(x)._x)
""",
    "super": """
class A:
    def __init__(self, x):
        self.x = x

class B(A):
    def __init__(self, x):
        super().__init__(x)

def solve(x):
    return sum(B(x).x)
""",
    "variable input": "def solve(x):\n    input = x\n    return sum(input)",
    "variable open": "def solve(x):\n    open = 0\n    for v in x:\n        open += v\n    return open",
    "variables of modules": "def solve(x):\n    modules, signal = x, 0\n    return sum(modules) + signal",
    "json": "import json\ndef solve(x):\n    return sum(json.loads(json.dumps(x)))",
    "random": "import random\ndef solve(x):\n    random.shuffle(x)\n    return sum(x)",
    "datetime": "import datetime\ndef solve(x):\n    return datetime.timedelta(days=sum(x)).days",
    "dataclasses": """
from dataclasses import dataclass, field

@dataclass(order=True)
class Box:
    values: list = field(default_factory=list)

def solve(x):
    return sum(Box(x).values)
""",
    "enum": """
from enum import Enum
class Sign(Enum):
    PLUS = 1

def solve(x):
    return sum(v * Sign.PLUS.value for v in x)
""",
    "sys": "import sys\nsys.setrecursionlimit(5000)\ndef solve(x):\n    return sum(x)",
    "sys.maxsize": "import sys\ndef solve(x):\n    return min(sum(x), sys.maxsize)",
    "os": "import os\ndef solve(x):\n    return sum(x) if os.sep else 0",
    "time": "import time\ndef solve(x):\n    start = time.time()\n    return sum(x)",
    "statistics": "import statistics\ndef solve(x):\n    return int(round(statistics.mean(x) * len(x))) if x else 0",
    "decimal": "from decimal import Decimal\ndef solve(x):\n    return int(sum(map(Decimal, x)))",
    "fractions": """
from fractions import Fraction
def solve(x):
    return int(sum((Fraction(v, 2) for v in x), Fraction(0)) * 2)
""",
    "contextlib": "import contextlib\ndef solve(x):\n    with contextlib.suppress(KeyError):\n        return sum(x)",
    "collections.namedtuple": """
from collections import namedtuple
P = namedtuple('P', 'a b')
def solve(x):
    return P(sum(x), 0).a
""",
    "functools.wraps": """
import functools
def same(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner

@same
def solve(x):
    return sum(x)
""",
    "functools.cache": """
from functools import cache
@cache
def up(n):
    return n

def solve(x):
    return sum(up(v) for v in x)
""",
    "functools.partial": "from functools import partial\ndef solve(x):\n    return partial(sum, x)()",
    "getattr": "def solve(x):\n    return getattr(x, '__len__')() * 0 + sum(x)",
    "hasattr": "def solve(x):\n    return sum(x) if hasattr(x, 'append') else 0",
    "vars": "class A:\n    pass\n\ndef solve(x):\n    a = A()\n    a.x = sum(x)\n    return vars(a)['x']",
    "attrgetter": """
from operator import itemgetter, attrgetter
def solve(x):
    return sum(map(attrgetter('real'), x))
""",
    "globals": "TOTAL = 0\ndef solve(x):\n    globals()['TOTAL'] = sum(x)\n    return TOTAL",
    "global": """
total = 0
def solve(x):
    global total
    total = 0
    for v in x:
        total += v
    return total
""",
    "nonlocal": """
def solve(x):
    total = 0
    def add(v):
        nonlocal total
        total += v
    for v in x:
        add(v)
    return total
""",
    "closure": "def solve(x):\n    def inner():\n        return sum(x)\n    return inner()",
    "lambda": "solve = lambda x: sum(x)",
    "default argument": "def solve(x, start=0, *, scale=1):\n    return start + scale * sum(x)",
    "stars": """
def add(*values, **named):
    return sum(values) + named.get('more', 0)

def solve(x):
    return add(*x, **{'more': 0})
""",
    "unpacking": "def solve(x):\n    first, *rest = [0, *x]\n    return first + sum(rest)",
    "swap": "def solve(x):\n    a, b = 0, sum(x)\n    a, b = b, a\n    return a",
    "while": """
def solve(x):
    i = total = 0
    while i < len(x):
        total += x[i]
        i += 1
    return total
""",
    "for else": """
def solve(x):
    for v in x:
        if v == 99:
            break
    else:
        return sum(x)
    return 0
""",
    "continue": """
def solve(x):
    t = 0
    for v in x:
        if not v:
            continue
        t += v
    return t
""",
    "enumerate": "def solve(x):\n    return sum(v for i, v in enumerate(x))",
    "zip": "def solve(x):\n    return sum(a * b for a, b in zip(x, [1] * len(x)))",
    "nested comprehension": "def solve(x):\n    return sum(v for row in [[u] for u in x] for v in row)",
    "dictionary": "def solve(x):\n    d = {i: v for i, v in enumerate(x)}\n    return sum(d.values())",
    "set": "def solve(x):\n    return sum({(i, v) for i, v in enumerate(x)} and x)",
    "slices": "def solve(x):\n    return sum(x[::-1][:len(x)])",
    "ternary": "def solve(x):\n    return sum(x) if x else 0",
    "walrus": "def solve(x):\n    if (total := sum(x)) or True:\n        return total",
    "chained comparison": "def solve(x):\n    return sum(v for v in x if -100 <= v < 100)",
    "try finally": "def solve(x):\n    try:\n        t = sum(x)\n    finally:\n        pass\n    return t",
    "raise": """
def solve(x):
    try:
        raise ValueError(sum(x))
    except ValueError as e:
        return e.args[0]
""",
    "exception class": """
class Bad(Exception):
    pass

def solve(x):
    try:
        raise Bad()
    except Bad:
        return sum(x)
""",
    "annotations": """
from typing import Dict, List, Optional
def solve(x: List[int]) -> Optional[int]:
    total: int = sum(x)
    return total
""",
    "future annotations": "from __future__ import annotations\ndef solve(x: list[int]) -> int:\n    return sum(x)",
    "docstring": '''
def solve(x):
    """Sum."""
    return sum(x)
''',
    "main guard": "def solve(x):\n    return sum(x)\n\nif __name__ == '__main__':\n    print(solve([1]))",
    "print": "def solve(x):\n    print('sum', x, sep=':')\n    return sum(x)",
    "assertion": "def solve(x):\n    assert isinstance(x, list), 'a list'\n    return sum(x)",
    "generator": "def each(x):\n    for v in x:\n        yield v\n\ndef solve(x):\n    return sum(each(x))",
    "iterator": """
def solve(x):
    it, t = iter(x), 0
    while (v := next(it, None)) is not None:
        t += v
    return t
""",
    "class with iter": """
class A:
    def __init__(self, x):
        self.x = x
    def __iter__(self):
        return iter(self.x)

def solve(x):
    return sum(A(x))
""",
    "class method": """
class S:
    @classmethod
    def add(cls, x):
        return sum(x)
    @staticmethod
    def zero():
        return 0

def solve(x):
    return S.add(x) + S.zero()
""",
    "operator overloading": """
class V:
    def __init__(self, v):
        self.v = v
    def __add__(self, o):
        return V(self.v + o.v)

def solve(x):
    t = V(0)
    for v in x:
        t = t + V(v)
    return t.v
""",
    "format": "def solve(x):\n    return int('{}'.format(sum(x)))",
    "f-string": "def solve(x):\n    return int(f'{sum(x):d}')",
    "percent": "def solve(x):\n    return int('%d' % sum(x))",
    "regular expression": r"""
import re
def solve(x):
    return sum(int(m) for m in re.findall(r'-?\d+', str(x)))
""",
    "heap": """
import heapq
def solve(x):
    h = list(x)
    heapq.heapify(h)
    return sum(heapq.heappop(h) for _ in range(len(h)))
""",
    "bisect": """
from bisect import insort
def solve(x):
    y = []
    for v in x:
        insort(y, v)
    return sum(y)
""",
    "itertools": """
from itertools import accumulate, chain
def solve(x):
    return list(chain([0], accumulate(x)))[-1]
""",
    "numpy-like": "from math import fsum\ndef solve(x):\n    return int(fsum(x))",
    "Counter": """
from collections import Counter
def solve(x):
    return sum(v * n for v, n in Counter(x).items())
""",
    "deque": """
from collections import deque
def solve(x):
    q, t = deque(x), 0
    while q:
        t += q.popleft()
    return t
""",
    "defaultdict": """
from collections import defaultdict
def solve(x):
    d = defaultdict(int)
    for v in x:
        d[0] += v
    return d[0]
""",
    "string methods": "def solve(x):\n    return sum(int(p) for p in ','.join(map(str, x)).split(',') if p)",
    "match": """
def solve(x):
    match len(x):
        case 0:
            return 0
        case _:
            return sum(x)
""",
    "evaluates text": "def solve(x):\n    return eval('sum(x)')",
    "del": "def solve(x):\n    y = [0] + x\n    del y[0]\n    return sum(y)",
    "bit operations": "def solve(x):\n    t = sum(x)\n    return ~(~t) ^ 0 | 0",
    "deep copy": "import copy\ndef solve(x):\n    return sum(copy.deepcopy(x))",
    "sorted by key": "def solve(x):\n    return sum(sorted(x, key=lambda v: -v))",
    "any and all": "def solve(x):\n    return sum(x) if all(isinstance(v, int) for v in x) else 0",
    "recursion by halves": """
def solve(x):
    if len(x) < 2:
        return x[0] if x else 0
    m = len(x) // 2
    return solve(x[:m]) + solve(x[m:])
""",
}
"""By the form."""
