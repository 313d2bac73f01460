"""Dependency graphs as short equations, or as sentences about animals, goods or plants."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.graphs.data import Graph, Node

WORDS: Mapping[str, tuple[str, ...]] = {
    "zoo": (
        *("antelopes", "bears", "camels", "deer", "eagles", "foxes", "giraffes", "hippos", "ibises", "jaguars"),
        *("kangaroos", "lions", "monkeys", "newts", "otters", "pandas", "quails", "rhinos", "seals", "tigers"),
        *("umbrellabirds", "vultures", "wolves", "oxen", "yaks", "zebras"),
    ),
    "shop": (
        *("apples", "books", "candles", "dolls", "envelopes", "forks", "gloves", "hats", "ink pots", "jars", "kettles"),
        *("lamps", "mugs", "nails", "onions", "pens", "quilts", "ropes", "spoons", "toys", "umbrellas", "vases"),
        *("watches", "xylophones", "yo-yos", "zips"),
    ),
    "garden": (
        *("asters", "begonias", "crocuses", "daisies", "elders", "ferns", "geraniums", "hollies", "irises"),
        *("jasmines", "kales", "lilies", "mints", "nettles", "orchids", "poppies", "quinces", "roses", "sages"),
        *("tulips", "ulmos", "violets", "willows", "xerophytes", "yews", "zinnias"),
    ),
}
"""By wording, what the quantities from a to z are numbers of."""

_OPERATIONS = {"+": "the sum of", "-": "the difference of", "*": "the product of"}


def write_question(graph: Graph, order: list[int], wording: str, modulus: int) -> str:
    """Write the definitions in an order and the question, as "a=3;b=a+2;b?" or as sentences."""
    nodes = [graph.nodes[i] for i in order]
    if wording == "symbols":
        return ";".join([*map(str, nodes), f"{graph.asked}?"])
    lines = [f"All numbers are counted modulo {modulus}."]
    lines += [_sentence(node, wording) for node in nodes]
    lines.append(
        f"How many {_noun(graph.asked, wording)} are there? Write one line for each number that is needed, with its "
        "first letter, as b=a+2=5 or a=3; the last one answers the question."
    )
    return "\n".join(lines)


def _noun(name: str, wording: str) -> str:
    noun = WORDS[wording][ord(name) - ord("a")]
    return noun if noun.startswith(name) else f"{noun} ({name})"


def _sentence(node: Node, wording: str) -> str:
    operands = [f"the number of {_noun(o, wording)}" if isinstance(o, str) else str(o) for o in node.operands]
    right = f"{_OPERATIONS[node.symbol]} {operands[0]} and {operands[1]}" if node.symbol else operands[0]
    return f"The number of {_noun(node.name, wording)} is {right}."
