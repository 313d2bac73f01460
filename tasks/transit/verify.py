"""Verify routes on a transit network, and short answers about it."""

from __future__ import annotations

import re
from itertools import pairwise

from tasks.checks import final_line
from tasks.transit.network import Leg, Network

LEG = re.compile(r"([a-z]+) ([A-Z]) ([A-Z])")
LONGEST = 12  # legs


def verify_route(text: str, network: Network, origin: str, target: str, fewest: int) -> dict[str, float]:
    """Score the route on the final line, such as "red A C, blue C F".

    format: 1 if the final line is legs of a line and two stations, separated by ", ".
    exact: 1 if the legs chain from the origin to the target along their lines.
    fewest: exact, and no route has fewer legs.
    detail: 1 for such a route, else `detail_points` divided by those of the reference; a point less than 1 at most.
    """
    legs = _read_legs(final_line(text))
    exact = network.accepts(legs, origin, target)
    reference = network.route(origin, target) or []
    best = exact and len(legs) == fewest
    points = detail_points(legs, network, reference, LONGEST if exact else len(reference))
    full = full_points(reference, network)
    return {
        "exact": float(exact),
        "fewest": float(best),
        "detail": 1.0 if best else min(max(points, 0.0), full - 1) / full,
        "format": float(bool(legs)),
    }


def detail_points(legs: list[Leg], network: Network, reference: list[Leg], most: int = LONGEST) -> float:
    """Points for right pieces of a route, at most 10.

    2 for the right ends; 5 less if there are more legs than in the reference; for each of at most `most` legs whose
    line has both its stations 4 where the reference has one leg, and 3 where it has more; 1 for each of the reference's
    transfers at which the next leg begins.
    Source: RewardMap, "Tackling Sparse Rewards in Fine-grained Visual Reasoning via Multi-Stage RL", 2025. There the
    line of a leg has to exist; here it has to stop at both stations, so that a guessed line earns nothing, and a list
    of all legs of a line earns less than the route.
    """
    if not legs:
        return 0.0
    along = dict(network.lines)
    ends = 2.0 * (legs[0][1] == reference[0][1] and legs[-1][2] == reference[-1][2])
    right = {leg for leg in legs if leg[1] != leg[2] and set(leg[1:]) <= set(along.get(leg[0], ""))}
    joints = {leg[2] for leg, following in pairwise(legs) if leg[2] == following[1]}
    transfers = joints & {leg[2] for leg in reference[:-1]}
    longer = 5.0 * (len(legs) > len(reference))
    count = min(len(right), most)
    return min(10.0, ends - longer + count * (4 if len(reference) == 1 else 3) + len(transfers))


def full_points(reference: list[Leg], network: Network) -> float:
    """Points of the reference itself, at most 10."""
    return detail_points(reference, network, reference, len(reference))


def verify_word(text: str, answer: str, words: tuple[str, ...]) -> dict[str, float]:
    """exact: 1 if the final line is the answer; format: 1 if it is one of the possible answers."""
    final = final_line(text)
    return {"exact": float(final == answer), "format": float(final in words)}


def write_route(legs: list[Leg]) -> str:
    """Write legs as a verifier reads them."""
    return ", ".join(" ".join(leg) for leg in legs)


def _read_legs(line: str) -> list[Leg]:
    if len(line) > LONGEST * 20:
        return []
    parts = [LEG.fullmatch(part) for part in line.split(", ")]
    return [(part[1], part[2], part[3]) for part in parts if part] if all(parts) and len(parts) <= LONGEST else []
