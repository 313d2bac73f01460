import math

import pytest

from mmrl.core.errors import check_at_least, check_fraction, check_interval, check_positive


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1]", (0, 0.5, 1), (-1e-9, 1.1, math.nan)),
        ("(0, 1]", (1e-9, 1), (0, 1.1)),
        ("[0, 0.5)", (0, 0.4), (-0.1, 0.5)),
        ("(-inf, 0]", (-(10**6), 0), (1e-9, math.nan)),
        ("[2, 100]", (2, 100), (1, 101)),
    ],
)
def test_a_number_outside_its_interval_is_refused_by_name(interval, inside, outside):
    for value in inside:
        check_interval("part", interval, a=value)
    for value in outside:
        with pytest.raises(ValueError) as error:
            check_interval("part", interval, good=inside[0], bad=value)
        assert str(error.value) == f"part.bad must be in {interval}, got {value}"


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (check_fraction, 2, "must be in [0, 1], got 2"),
        (check_positive, 0, "must be > 0, got 0"),
        (check_positive, math.nan, "must be > 0, got nan"),
        (lambda *part, **values: check_at_least(1, *part, **values), 0, "must be at least 1, got 0"),
    ],
)
def test_the_other_ranges_and_both_ways_to_name_an_argument(check, value, message):
    check("gae", gamma=1)
    for part, name in (("gae", "gae.gamma"), ("task 'sums':", "task 'sums': gamma")):
        with pytest.raises(ValueError) as error:
            check(part, gamma=value)
        assert str(error.value) == f"{name} {message}"
