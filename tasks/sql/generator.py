"""Draw schemas, rows, and questions with their queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NAMES = (
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Hana",
    "Ivo",
    "Jun",
    "Kai",
    "Lea",
    "Mia",
    "Noor",
    "Oto",
    "Pia",
)
TOWNS = ("Lima", "Oslo", "Rome", "Kyiv", "Bern")

ENTITIES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "worker": (("age", "salary", "hours", "level"), ("town", "job")),
    "pupil": (("age", "grade", "height", "score"), ("town", "club")),
    "player": (("age", "goals", "height", "matches"), ("town", "team")),
    "singer": (("age", "songs", "fans", "prizes"), ("town", "style")),
    "farmer": (("age", "cows", "fields", "tractors"), ("town", "crop")),
    "driver": (("age", "trips", "points", "fines"), ("town", "car")),
    "author": (("age", "books", "pages", "readers"), ("town", "genre")),
    "doctor": (("age", "patients", "years", "shifts"), ("town", "ward")),
}
"""By entity, columns of integers and columns of texts; every table has id and name as well."""

ITEMS: Mapping[str, tuple[str, ...]] = {
    **{"order": ("price", "weight"), "trip": ("length", "cost"), "call": ("minutes", "cost")},
    **{"loan": ("amount", "months"), "visit": ("minutes", "cost"), "gift": ("price", "weight")},
}
"""By item, columns of integers; each row belongs to an entity, by the column of its name and `_id`."""

WORDS: Mapping[str, tuple[str, ...]] = {
    **{"town": TOWNS, "job": ("cook", "clerk", "smith"), "club": ("chess", "choir", "judo")},
    **{"team": ("red", "blue", "green"), "style": ("jazz", "rock", "folk"), "crop": ("corn", "rye", "hops")},
    **{"car": ("van", "bus", "cab"), "genre": ("crime", "drama", "verse"), "ward": ("east", "west", "north")},
}


@dataclass(frozen=True)
class Schema:
    """A table of entities and a table of items that belong to them."""

    entity: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    item: str
    amounts: tuple[str, ...]

    def statements(self) -> list[str]:
        """The statements that create the tables."""
        columns = [
            "id INTEGER",
            "name TEXT",
            *(f"{c} INTEGER" for c in self.numbers),
            *(f"{c} TEXT" for c in self.texts),
        ]
        item = ["id INTEGER", f"{self.entity}_id INTEGER", *(f"{c} INTEGER" for c in self.amounts)]
        return [f"CREATE TABLE {self.entity} ({', '.join(columns)})", f"CREATE TABLE {self.item}s ({', '.join(item)})"]


def draw_schema(rng: np.random.Generator) -> Schema:
    """Draw an entity and an item with some of their columns."""
    entity = list(ENTITIES)[int(rng.integers(len(ENTITIES)))]
    item = list(ITEMS)[int(rng.integers(len(ITEMS)))]
    numbers, texts = ENTITIES[entity]
    return Schema(entity, _draw_some(rng, numbers, 2), _draw_some(rng, texts, 1), item, _draw_some(rng, ITEMS[item], 1))


def fill_tables(schema: Schema, seed: int) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Draw the rows of both tables: statements with places, and their values."""
    rng = np.random.default_rng(seed)
    entities: list[tuple[object, ...]] = []
    for row in range(int(rng.integers(9, 14))):
        numbers = [int(rng.integers(1, 60)) for _ in schema.numbers]
        texts = [WORDS[c][int(rng.integers(len(WORDS[c])))] for c in schema.texts]
        entities.append((row + 1, NAMES[int(rng.integers(len(NAMES)))], *numbers, *texts))
    items = [
        (row + 1, int(rng.integers(1, len(entities) + 1)), *(int(rng.integers(1, 40)) for _ in schema.amounts))
        for row in range(int(rng.integers(9, 16)))
    ]
    return _write_inserts(schema, entities, items)


def fill_similar(schema: Schema, seed: int, numbers: Sequence[int]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Draw rows of both tables that are like each other, out of order: near misses of a query differ on them.

    A share of the numbers is among `numbers` or 1 beside them, one column of four has one number in all of its rows,
    and there are few names and words.
    """
    rng = np.random.default_rng(seed)
    near = [number + step for number in numbers for step in (-1, 0, 1)]
    count, share = int(rng.integers(3, 14)), rng.random()

    def draw_numbers(size: int, most: int) -> list[int]:
        values = np.where(rng.random(size) < share, rng.choice(near, size), rng.integers(1, most, size)).tolist()
        return [values[0]] * size if rng.random() < 1 / 4 else values

    def draw_words(words: Sequence[str]) -> list[str]:
        indices = rng.permutation(len(words))[: int(rng.integers(2, 6))]
        return [words[i] for i in rng.choice(indices, size=count)]

    columns = [draw_numbers(count, 60) for _ in schema.numbers] + [draw_words(WORDS[c]) for c in schema.texts]
    entities = list(zip(range(1, count + 1), draw_words(NAMES), *columns))
    size = int(rng.integers(3, 16))
    owners = [int(owner) for owner in rng.integers(1, count + 1, size=size)]
    items = list(zip(range(1, size + 1), owners, *(draw_numbers(size, 40) for _ in schema.amounts)))
    return _write_inserts(schema, *([rows[i] for i in rng.permutation(len(rows))] for rows in (entities, items)))


def _write_inserts(
    schema: Schema, entities: Sequence[tuple[object, ...]], items: Sequence[tuple[object, ...]]
) -> list[tuple[str, list[tuple[object, ...]]]]:
    tables = ((schema.entity, entities), (f"{schema.item}s", items))
    return [(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", list(rows)) for name, rows in tables]


def draw_question(rng: np.random.Generator, schema: Schema, joins: bool) -> tuple[str, str]:
    """Draw a question about a schema and the query that answers it."""
    e, i = schema.entity, f"{schema.item}s"
    n, m = (str(c) for c in rng.permutation(schema.numbers)[:2])
    t, a = str(rng.choice(schema.texts)), str(rng.choice(schema.amounts))
    word = WORDS[t][int(rng.integers(len(WORDS[t])))]
    k, few = int(rng.integers(10, 50)), int(rng.integers(2, 5))
    side, sign = (("above", ">"), ("below", "<"))[int(rng.integers(2))]
    most, order = (("highest", "DESC"), ("lowest", "ASC"))[int(rng.integers(2))]
    kind, function = (("average", "AVG"), ("total", "SUM"), ("largest", "MAX"), ("smallest", "MIN"))[
        int(rng.integers(4))
    ]
    link = f"{e} JOIN {i} ON {i}.{e}_id = {e}.id"
    single = (
        (f"The names of each {e} with {n} {side} {k}?", f"SELECT name FROM {e} WHERE {n} {sign} {k}"),
        (f"The {n} of each {e} whose {t} is {word}?", f"SELECT {n} FROM {e} WHERE {t} = '{word}'"),
        (f"How many {e} rows have {n} {side} {k}?", f"SELECT COUNT(*) FROM {e} WHERE {n} {sign} {k}"),
        (f"The {kind} {n} of all {e} rows?", f"SELECT {function}({n}) FROM {e}"),
        (
            f"The {kind} {n} of the {e} rows whose {t} is {word}?",
            f"SELECT {function}({n}) FROM {e} WHERE {t} = '{word}'",
        ),
        (f"Each {t} and its number of {e} rows?", f"SELECT {t}, COUNT(*) FROM {e} GROUP BY {t}"),
        (f"Each {t} and its {kind} {n}?", f"SELECT {t}, {function}({n}) FROM {e} GROUP BY {t}"),
        (
            f"The ids of the {few} {e} rows with the {most} {n}, in that order, ties by id?",
            f"SELECT id FROM {e} ORDER BY {n} {order}, id LIMIT {few}",
        ),
        (
            f"The different {t} values of {e} rows with {n} {side} {k}?",
            f"SELECT DISTINCT {t} FROM {e} WHERE {n} {sign} {k}",
        ),
        (f"The names of each {e} with more {n} than {m}?", f"SELECT name FROM {e} WHERE {n} > {m}"),
        (
            f"The names of each {e} whose {n} is above the average {n}?",
            f"SELECT name FROM {e} WHERE {n} > (SELECT AVG({n}) FROM {e})",
        ),
        (
            f"The {t} values with at least {few} {e} rows?",
            f"SELECT {t} FROM {e} GROUP BY {t} HAVING COUNT(*) >= {few}",
        ),
    )
    joined = (
        (f"The names of each {e} and the {a} of its {i}?", f"SELECT name, {a} FROM {link}"),
        (
            f"The {kind} {a} of the {i} of {e} rows whose {t} is {word}?",
            f"SELECT {function}({a}) FROM {link} WHERE {t} = '{word}'",
        ),
        (f"The ids of each {e} without {i}?", f"SELECT id FROM {e} WHERE id NOT IN (SELECT {e}_id FROM {i})"),
        (
            f"The id of each {e} with {i} and the number of them?",
            f"SELECT {e}.id, COUNT(*) FROM {link} GROUP BY {e}.id",
        ),
    )
    kinds = single + joined if joins else single
    return kinds[int(rng.integers(len(kinds)))]


def _draw_some(rng: np.random.Generator, columns: tuple[str, ...], least: int) -> tuple[str, ...]:
    count = int(rng.integers(least, len(columns) + 1))
    return tuple(columns[i] for i in rng.permutation(len(columns))[:count])
