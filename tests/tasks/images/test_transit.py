"""Transit maps: golden routes and scores, disjoint splits, and answers that only look right."""

from itertools import pairwise

import pytest

from mmrl.core.rng import derive_rng
from tasks.transit import Transit
from tasks.transit.network import COLOURS, LETTERS, Network, draw_network
from tasks.transit.verify import detail_points, verify_route
from tests.tasks.replies import reply

# red A B C, blue C D E, green E F: from A to B one leg, to D two, to F three
NETWORK = Network(
    (("red", "ABC"), ("blue", "CDE"), ("green", "EF")),
    (("A", (0, 0)), ("B", (0, 1)), ("C", (0, 2)), ("D", (1, 2)), ("E", (2, 2)), ("F", (2, 3))),
)


def test_the_search_finds_a_route_with_the_fewest_lines():
    assert NETWORK.route("A", "C") == [("red", "A", "C")]
    assert NETWORK.route("F", "B") == [("green", "F", "E"), ("blue", "E", "C"), ("red", "C", "B")]
    assert NETWORK.route("A", "Z") is None and NETWORK.serving("C") == ["red", "blue"]


@pytest.mark.parametrize(
    ("text", "exact", "fewest", "detail", "well_formed"),
    [
        ("red A C, blue C D", 1, 1, 9 / 9, 1),
        ("First the red one.\nred A C, blue C D\n", 1, 1, 1, 1),
        ("red A B, red B C, blue C D", 1, 0, (2 + 9 + 1 - 5) / 9, 1),
        ("red A C", 0, 0, 3 / 9, 1),  # the right leg, the wrong end
        ("blue A C, red C D", 0, 0, 3 / 9, 1),  # right ends and transfer, wrong lines
        ("red A D", 0, 0, 2 / 9, 1),
        ("red A C, blue E D", 0, 0, 8 / 9, 1),  # right pieces that do not chain are not exact
        ("red A A, red A C, blue C D", 0, 0, (2 + 6 + 1 - 5) / 9, 1),
        ("pink A D", 0, 0, 2 / 9, 1),
        ("red A C blue C D", 0, 0, 0, 0),
        ("red a c, blue c d", 0, 0, 0, 0),
        (", ".join(["red A C"] * 13), 0, 0, 0, 0),
        ("", 0, 0, 0, 0),
    ],
)
def test_verify_route(text, exact, fewest, detail, well_formed):
    assert verify_route(text, NETWORK, "A", "D", 2) == {
        "exact": exact,
        "fewest": fewest,
        "detail": pytest.approx(detail),
        "format": well_formed,
    }


def test_detail_points_of_the_paper():
    direct = [("red", "A", "C")]
    assert detail_points(direct, NETWORK, direct) == 6
    three = NETWORK.route("A", "F")
    assert detail_points(three, NETWORK, three) == 10  # 2 + 3 * 3 + 2, at most 10


def test_lines_cross_share_no_track_and_visit_a_point_once():
    rng = derive_rng("networks", 0)
    drawn = [network for network in (draw_network(rng, 5, 3, 4) for _ in range(200)) if network]
    assert len(drawn) > 20
    for network in drawn:
        rails = [frozenset(pair) for _, stations in network.lines for pair in pairwise(stations)]
        assert len(rails) == len(set(rails)) == 9
        assert all(len(set(stations)) == 4 for _, stations in network.lines)
        assert all(network.route("".join(dict(network.places))[0], name) is not None for name in dict(network.places))


def test_the_map_shows_its_lines_and_stations():
    image = NETWORK.render(64, 4)
    assert image.shape == (64, 64, 3)
    assert image[8, 16].tolist() == list(COLOURS["red"])  # between A and B
    assert image[32, 40].tolist() == list(COLOURS["blue"]) or image[31, 40].tolist() == list(COLOURS["blue"])
    assert image[56, 8].tolist() == [255, 255, 255]  # no station there


def test_kinds_and_transfers_are_those_asked_for():
    task = Transit(kinds=["on_line", "count", "route"], transfers=(1, 1))
    seen = [task[i] for i in range(60)]
    assert {prompt.info["kind"] for prompt in seen} == {"on_line", "count", "route"}
    assert {prompt.info["transfers"] for prompt in seen if prompt.info["kind"] == "route"} == {1}
    assert {prompt.answer for prompt in seen if prompt.info["kind"] == "on_line"} == {"yes", "no"}
    for prompt in seen:
        scores = task.score(reply(prompt, task.demonstrate(prompt.index)))
        assert set(scores.values()) == {1.0}
        assert task.score(reply(prompt, f"{prompt.answer}."))["exact"] == 0


def test_no_network_is_in_both_splits():
    networks = [{Transit().on(split).problem(i).network for i in range(200)} for split in ("train", "held_out")]
    assert not networks[0] & networks[1]


@pytest.mark.parametrize(
    "options", [{"kinds": ["?"]}, {"kinds": []}, {"lines": 9}, {"transfers": (0, 3)}, {"stations": 1}, {"size": 16}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="transit"):
        Transit(**options)


def all_legs(network, line) -> list:
    stations = dict(network.lines)[line]
    return [(line, a, b) for a in stations for b in stations if a != b]


@pytest.mark.parametrize("transfers", [(0, 0), (1, 1), (2, 2)])
def test_details_of_wrong_routes_are_below_those_of_the_right_one(transfers):
    task = Transit(transfers=transfers, lines=4)
    for index in range(40):
        prompt = task[index]
        problem = prompt.info["problem"]
        legs = [tuple(leg.split(" ")) for leg in problem.answer.split(", ")]
        wrong = [all_legs(problem.network, line)[:12] for line, _ in problem.network.lines]
        wrong += [[legs[0], *all_legs(problem.network, legs[-1][0])[:10], legs[-1]]]
        for i, (line, a, b) in enumerate(legs):  # one leg changed
            changes = [(line, b, a), *((other, a, b) for other in COLOURS), *((line, a, c) for c in LETTERS)]
            changes += [(line, c, b) for c in LETTERS]
            wrong += [[*legs[:i], change, *legs[i + 1 :]] for change in changes]
        wrong += [legs[:-1], legs[1:], [*legs, legs[-1]], [*legs, *legs], legs[::-1] if len(legs) > 1 else []]
        assert task.score(reply(prompt, problem.answer))["detail"] == 1
        for route in wrong:
            scores = task.score(reply(prompt, ", ".join(map(" ".join, route))))
            if list(route) == legs or scores["fewest"] == 1:  # another right route with as many legs
                assert scores["detail"] == 1
            else:
                assert 0 <= scores["detail"] < 1, (problem.answer, route, scores)
