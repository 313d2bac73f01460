"""Invented people and what is said of them. Two worlds: nobody of the held-out one is known in the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from string import ascii_lowercase

from mmrl.rng import derive_rng

MOST = 10_000  # people, since all questions are listed
ARTICLES = ("an", "the")  # which judges of answers delete


@dataclass(frozen=True)
class World:
    """Who is whose, and the questions about it."""

    facts: dict[str, dict[str, str]]  # of each name, by relation, another name
    questions: tuple[tuple[str, ...], ...]  # a name and the relations to follow from it


def names(people: int, relations: tuple[str, ...]) -> list[str]:
    """At least so many words that are no relation: of two letters where they suffice, else of three."""
    for length in (2, 3):
        words = ("".join(letters) for letters in product(ascii_lowercase, repeat=length))
        found = [word for word in words if word not in (*ARTICLES, *relations)]
        if len(found) >= people:
            break
    return found


@lru_cache(maxsize=8)
def worlds(people: int, relations: tuple[str, ...], hops: int, held_out_fraction: float, seed: int) -> dict[str, World]:
    """Both worlds, by split."""
    rng = derive_rng("wiki", "people", people, seed)
    pool = names(people, relations)
    chosen = [pool[i] for i in rng.permutation(len(pool))[:people]]
    cut = round(held_out_fraction * people)
    parts = {"held_out": chosen[:cut], "train": chosen[cut:]}
    return {split: _world(part, relations, hops, split, seed) for split, part in parts.items()}


def _world(people: list[str], relations: tuple[str, ...], hops: int, split: str, seed: int) -> World:
    rng = derive_rng("wiki", "facts", split, seed)
    facts = {}
    for name in people:
        others = [other for other in people if other != name]
        # distinct, so that a page names nobody twice
        facts[name] = dict(zip(relations, (others[i] for i in rng.permutation(len(others))[: len(relations)])))
    paths: list[tuple[str, ...]] = [(name,) for name in people]
    for _ in range(hops):
        paths = [(*path, relation) for path in paths for relation in relations]
    order = rng.permutation(len(paths))
    return World(facts, tuple(paths[i] for i in order))


def page(name: str, facts: dict[str, str]) -> str:
    """What the wiki says of a person."""
    return " ".join([name, *(word for fact in facts.items() for word in fact)])


def path_of(question: tuple[str, ...], world: World) -> list[str]:
    """Everybody on the way from the name in the question to the answer."""
    name, *relations = question
    out = [name]
    for relation in relations:
        out.append(world.facts[out[-1]][relation])
    return out
