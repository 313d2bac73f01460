"""Steps of small functions: what they say, the lines of Python that do it, and between which types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step of a function on x. {k} in the text and the code stands for a drawn number.

    `before` and `after` are the types of x: "list" (of integers), "text", "number" (an integer) or "truth".
    """

    before: str
    after: str
    text: str
    code: str
    numbers: tuple[int, ...] = ()  # that {k} may be


STEPS: Mapping[str, Step] = {
    "even": Step("list", "list", "keep the even numbers", "x = [v for v in x if v % 2 == 0]"),
    "odd": Step("list", "list", "keep the odd numbers", "x = [v for v in x if v % 2 == 1]"),
    "above": Step("list", "list", "keep the numbers greater than {k}", "x = [v for v in x if v > {k}]", (-2, 0, 2, 4)),
    "below": Step("list", "list", "keep the numbers smaller than {k}", "x = [v for v in x if v < {k}]", (0, 3, 5, 7)),
    "add": Step("list", "list", "add {k} to each number", "x = [v + {k} for v in x]", (1, 2, 3, 5, 10)),
    "times": Step("list", "list", "multiply each number by {k}", "x = [v * {k} for v in x]", (2, 3, 4, 10)),
    "square": Step("list", "list", "square each number", "x = [v * v for v in x]"),
    "negate": Step("list", "list", "change the sign of each number", "x = [-v for v in x]"),
    "reverse": Step("list", "list", "reverse the order", "x = x[::-1]"),
    "sort": Step("list", "list", "sort in ascending order", "x = sorted(x)"),
    "descend": Step("list", "list", "sort in descending order", "x = sorted(x, reverse=True)"),
    "unique": Step("list", "list", "keep the first of equal numbers", "x = list(dict.fromkeys(x))"),
    "head": Step("list", "list", "keep the first {k} numbers", "x = x[:{k}]", (1, 2, 3, 4)),
    "drop": Step("list", "list", "remove the first {k} numbers", "x = x[{k}:]", (1, 2, 3)),
    "alternate": Step("list", "list", "keep every second number, from the first on", "x = x[::2]"),
    "running": Step(
        "list",
        "list",
        "replace each number by the sum of the numbers up to it",
        "total, sums = 0, []\nfor v in x:\n    total += v\n    sums.append(total)\nx = sums",
    ),
    "sum": Step("list", "number", "return the sum", "x = sum(x)"),
    "largest": Step("list", "number", "return the largest number, 0 if there is none", "x = max(x, default=0)"),
    "smallest": Step("list", "number", "return the smallest number, 0 if there is none", "x = min(x, default=0)"),
    "length": Step("list", "number", "return how many numbers there are", "x = len(x)"),
    "ascending": Step("list", "truth", "return whether they are in ascending order", "x = x == sorted(x)"),
    "join": Step("list", "text", "join the numbers with commas", "x = ','.join(str(v) for v in x)"),
    "upper": Step("text", "text", "change it to upper case", "x = x.upper()"),
    "backwards": Step("text", "text", "reverse the text", "x = x[::-1]"),
    "twice": Step("text", "text", "write each character twice", "x = ''.join(c * 2 for c in x)"),
    "vowels": Step("text", "text", "remove the vowels", "x = ''.join(c for c in x if c not in 'aeiouAEIOU')"),
    "words": Step("text", "text", "reverse the order of the words", "x = ' '.join(x.split()[::-1])"),
    "capitals": Step("text", "text", "capitalize each word", "x = ' '.join(w.capitalize() for w in x.split())"),
    "spaces": Step("text", "text", "replace spaces by dashes", "x = x.replace(' ', '-')"),
    "start": Step("text", "text", "keep the first {k} characters", "x = x[:{k}]", (2, 3, 4, 5)),
    "alphabet": Step("text", "text", "sort the characters", "x = ''.join(sorted(x))"),
    "lengths": Step("text", "list", "list the lengths of the words", "x = [len(w) for w in x.split()]"),
    "count": Step("text", "number", "return the number of vowels", "x = sum(c in 'aeiouAEIOU' for c in x)"),
    "palindrome": Step("text", "truth", "return whether it is a palindrome", "x = x == x[::-1]"),
    "size": Step("text", "number", "return the number of characters", "x = len(x)"),
    "digits": Step("number", "list", "list its decimal digits", "x = [int(c) for c in str(abs(x))]"),
    "divisors": Step(
        "number",
        "list",
        "list its positive divisors in ascending order",
        "x = [d for d in range(1, x + 1) if x % d == 0]",
    ),
    "upto": Step("number", "list", "list the numbers from 1 to it", "x = list(range(1, x + 1))"),
    "binary": Step("number", "text", "write it in binary digits", "x = bin(x)[2:] if x >= 0 else '-' + bin(x)[3:]"),
    "plus": Step("number", "number", "add {k}", "x = x + {k}", (1, 2, 3, 7)),
    "modulo": Step("number", "number", "take the remainder after division by {k}", "x = x % {k}", (2, 3, 5, 7)),
    "prime": Step(
        "number", "truth", "return whether it is prime", "x = x > 1 and all(x % d for d in range(2, int(x**0.5) + 1))"
    ),
    "fibonacci": Step(
        "number",
        "number",
        "return the Fibonacci number with that index, 0 and 1 being the first two, at most index 30",
        "a, b = 0, 1\nfor _ in range(min(x, 30)):\n    a, b = b, a + b\nx = a",
    ),
}

FIRST_TYPES: Mapping[str, str] = {"list": "a list of integers x", "text": "a text x", "number": "an integer x"}
