"""Synthetic knowledge bases of people and their relations; the splits have no person in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from string import ascii_lowercase

from mmrl.core.rng import derive_rng

MOST = 10_000  # people, since all questions are listed
ARTICLES = ("an", "the")  # which judges of answers delete


@dataclass(frozen=True)
class KnowledgeBase:
    """Relations between people, and the questions about them."""

    facts: dict[str, dict[str, str]]  # of each name, by relation, another name
    questions: tuple[tuple[str, ...], ...]  # a name and the relations to follow from it


def names(people: int, relations: tuple[str, ...]) -> list[str]:
    """At least so many words that are no relation: of two letters if they suffice, else of three."""
    for length in (2, 3):
        words = ("".join(letters) for letters in product(ascii_lowercase, repeat=length))
        result = [word for word in words if word not in (*ARTICLES, *relations)]
        if len(result) >= people:
            break
    return result


@lru_cache(maxsize=8)
def knowledge_bases(
    people: int, relations: tuple[str, ...], hops: int, held_out_fraction: float, seed: int
) -> dict[str, KnowledgeBase]:
    """Knowledge bases of both splits."""
    rng = derive_rng("wiki", "people", people, seed)
    pool = names(people, relations)
    sample = [pool[i] for i in rng.permutation(len(pool))[:people]]
    cut = round(held_out_fraction * people)
    parts = {"held_out": sample[:cut], "train": sample[cut:]}
    return {split: _knowledge_base(part, relations, hops, split, seed) for split, part in parts.items()}


def _knowledge_base(people: list[str], relations: tuple[str, ...], hops: int, split: str, seed: int) -> KnowledgeBase:
    rng = derive_rng("wiki", "facts", split, seed)
    facts = {}
    for name in people:
        others = [other for other in people if other != name]
        # distinct, so that a page names no person twice
        facts[name] = dict(zip(relations, (others[i] for i in rng.permutation(len(others))[: len(relations)])))
    paths: list[tuple[str, ...]] = [(name,) for name in people]
    for _ in range(hops):
        paths = [(*path, relation) for path in paths for relation in relations]
    order = rng.permutation(len(paths))
    return KnowledgeBase(facts, tuple(paths[i] for i in order))


def page(name: str, facts: dict[str, str]) -> str:
    """Text of the page of a person."""
    return " ".join([name, *(word for fact in facts.items() for word in fact)])


def path_of(question: tuple[str, ...], knowledge_base: KnowledgeBase) -> list[str]:
    """People on the path from the name in the question to the answer."""
    name, *relations = question
    out = [name]
    for relation in relations:
        out.append(knowledge_base.facts[out[-1]][relation])
    return out
