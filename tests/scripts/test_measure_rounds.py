"""The comparison of the stages of rounds over seeds, by hand, and the stored results."""

import json

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from scripts.measure_rounds import OUT, compare_stages

RESULTS = sorted(OUT.glob("*.json"))


def test_each_stage_is_compared_with_the_one_before_and_the_first_one():
    # gains of the third over the second: .1, .2, .3: mean .2, Student's t with 2 degrees of freedom 4.302653:
    # .2 -+ 4.302653 * .1 / sqrt(3) = .2 -+ .248414
    means = {0: (0.1, 0.2, 0.3), 1: (0.2, 0.3, 0.5), 2: (0.3, 0.4, 0.7)}
    seeds = {seed: {f"1/s{i}": {"mean": value} for i, value in enumerate(row)} for seed, row in means.items()}
    rows = compare_stages(seeds)
    assert [row["mean"] for row in rows] == pytest.approx([0.2, 0.3, 0.5]) and "gain_over_first" not in rows[0]
    gain = rows[2]["gain_over_before"]
    assert gain["stage"] == "1/s1" and gain["mean"] == pytest.approx(0.2)
    assert gain["interval"] == pytest.approx([-0.048414, 0.448414], abs=1e-6)
    assert rows[2]["gain_over_first"]["mean"] == pytest.approx(0.3)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_stored_result_follows_from_its_seeds_and_is_of_the_file_as_it_is(path):
    result = json.loads(path.read_text())
    assert result["stages"] == compare_stages(result["seeds"]) and len(result["seeds"]) >= 3
    steps = list_steps(read_rounds([path.stem]))
    assert [row["stage"] for row in result["stages"]] == [step.name for step in steps if step.kind == "evaluate"]
    assert set(result["content"]) == {step.name for step in steps if step.kind == "fit"}
