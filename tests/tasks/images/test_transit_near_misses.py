"""Near misses of right routes, judged by a ride from station to station that shares no code with the verifier."""

from collections import Counter
from itertools import pairwise

import numpy as np

from tasks.transit import Transit
from tasks.transit.network import COLOURS, LETTERS
from tests.tasks.replies import reply


def rides(network, line, station):
    """Return where one line gets a traveller who boards at a station, by single tracks between neighbours."""
    tracks = [pair for colour, stops in network.lines if colour == line for pair in pairwise(stops)]
    reached, size = {station}, 0
    while len(reached) > size:
        size = len(reached)
        reached |= {b for track in tracks for a, b in (track, track[::-1]) if a in reached}
    return reached - {station}


def fewest_legs(network, origin, target):
    """Return the fewest legs by growing the set of stations that are reached, one leg at a time."""
    reached, legs = {origin}, 0
    while target not in reached:
        reached |= {end for a in reached for line, _ in network.lines for end in rides(network, line, a)}
        legs += 1
    return legs


def arrives(network, text, origin, target):
    """Return whether a traveller who does what the text says, and nothing else, gets to the target."""
    at = origin
    for leg in text.split(", "):
        fields = leg.split(" ")
        if len(fields) != 3 or fields[1] != at or fields[2] not in rides(network, fields[0], at):
            return False
        at = fields[2]
    return at == target


def neighbours(network, station):
    return {b for _, stops in network.lines for p in pairwise(stops) for a, b in (p, p[::-1]) if a == station}


def mutate(problem, rng):
    """Yield (kind, text) for near misses of the expert's route; some of them are right."""
    legs = [tuple(leg.split(" ")) for leg in problem.answer.split(", ")]
    stops = [legs[0][1], *(leg[2] for leg in legs)]
    lines = [leg[0] for leg in legs]
    net, last = problem.network, len(legs)
    names, along = [name for name, _ in net.places], dict(net.lines)

    def write(colours, stations):
        return ", ".join(f"{line} {a} {b}" for line, (a, b) in zip(colours, pairwise(stations)))

    for i, leg in enumerate(legs):
        for colour in COLOURS:
            yield "another line", write([*lines[:i], colour, *lines[i + 1 :]], stops)
        yield "leg left out", ", ".join(" ".join(x) for k, x in enumerate(legs) if k != i)
        yield "leg twice", ", ".join(" ".join(x) for x in [*legs[: i + 1], *legs[i:]])
        yield "leg reversed", ", ".join(" ".join((x[0], x[2], x[1]) if k == i else x) for k, x in enumerate(legs))
        yield "one stop twice", ", ".join(" ".join((x[0], x[1], x[1]) if k == i else x) for k, x in enumerate(legs))
        for stop in names:
            yield "detour", write([*lines[: i + 1], *lines[i:]], [*stops[: i + 1], stop, *stops[i + 1 :]])
            yield "there and back", write([*lines[: i + 1], leg[0], *lines[i:]], [*stops[: i + 1], stop, *stops[i:]])
            colour = tuple(along)[int(rng.integers(len(along)))]
            yield (
                "detour by another line",
                write([*lines[:i], colour, *lines[i:]], [*stops[: i + 1], stop, *stops[i + 1 :]]),
            )
        for colour in along:
            by_end = [*stops[: i + 1], along[colour][-1], *stops[i + 1 :]]
            yield "leg by way of a line's end", write([*lines[: i + 1], *lines[i:]], by_end)
    for i in range(last + 1):
        yield "stop left out", write(lines[: last - 1], [*stops[:i], *stops[i + 1 :]])
        for stop in {*names, *rng.choice(list(LETTERS), 3).tolist()}:
            yield "another stop", write(lines, [*stops[:i], stop, *stops[i + 1 :]])
        for j in range(i):
            swapped = list(stops)
            swapped[i], swapped[j] = stops[j], stops[i]
            yield "stops swapped", write(lines, swapped)
    for stop in neighbours(net, problem.second):
        yield "ends at a neighbour", write(lines, [*stops[:-1], stop])
        yield "rides on", write([*lines, lines[-1]], [*stops, stop])
    for stop in neighbours(net, problem.first):
        yield "starts at a neighbour", write(lines, [stop, *stops[1:]])
        yield "boards before", write([lines[0], *lines], [stop, *stops])
    yield "backwards", write(lines[::-1], stops[::-1])
    yield "lines in another order", write(lines[::-1], stops)
    yield "one leg alone", f"{lines[0]} {problem.first} {problem.second}"
    yield "all stops of the first line", write([lines[0]] * (len(along[lines[0]]) - 1), along[lines[0]])
    right = problem.answer
    yield from {
        "stations only": " ".join(stops),
        "other letters": right.lower(),
        "other separator": right.replace(", ", "; ") + ";",
        "arrows": ", ".join(f"{line} {a} -> {b}" for line, a, b in legs),
        "route and more": f"{right}, {right}",
        "contradiction after it": f"{right}\nNo: {' '.join(legs[0])} and stay there",
        "right, but not last": f"{right}\n{write(lines[::-1], stops[::-1])}",
    }.items()


def test_near_misses_of_a_route_are_wrong():
    count, passed, refused, kinds = Counter(), [], [], Counter()
    for task in (Transit(transfers=(0, 2)), Transit(lines=4, stations=5, transfers=(1, 3), seed=3)):
        for index in range(40):
            prompt = task[index]
            problem, rng = prompt.info["problem"], np.random.default_rng(index)
            ends = (problem.first, problem.second)
            fewest = fewest_legs(problem.network, *ends)
            assert fewest == prompt.info["transfers"] + 1
            near = {text: kind for kind, text in mutate(problem, rng)} | {problem.answer: "the expert's"}
            texts = [text for text in near if 0 < text.count(",") + 1 <= 12]
            for text, scores in zip(texts, task.scores([reply(prompt, text) for text in texts])):
                final = text.splitlines()[-1] if text else ""
                exact = arrives(problem.network, final, *ends)
                best = exact and final.count(",") + 1 == fewest
                kinds[near[text]] += not best
                for name, right in (("exact", exact), ("fewest", best), ("detail", best)):
                    count[name, right] += 1
                    full = scores[name] >= 1
                    passed += [(name, near[text], text, problem)] * (full and not right)
                    refused += [(name, near[text], text, problem)] * (right and not full)
    assert len([kind for kind, number in kinds.items() if number >= 20]) >= 15, kinds
    assert min(count[name, False] for name in ("exact", "fewest", "detail")) > 1000, count
    assert min(count[name, True] for name in ("exact", "fewest", "detail")) >= 80, count
    assert not passed and not refused, (passed[:5], refused[:5])
