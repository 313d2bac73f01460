"""The comparison of the stages of rounds over seeds, by hand, and the stored results."""

import json

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from scripts.measure_rounds import OUT, STAGES, compare_stages

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


def test_the_ends_of_rounds_are_compared():
    names = ("0/begin", "1/a", "1/b", "2/a", "2/b")
    seeds = {seed: {name: {"mean": 0.1 * i + seed} for i, name in enumerate(names)} for seed in range(3)}
    others = {row["stage"]: row.get("gain_over_round_before", {}).get("stage") for row in compare_stages(seeds)}
    assert others == {"0/begin": None, "1/a": None, "1/b": "0/begin", "2/a": None, "2/b": "1/b"}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_stored_result_follows_from_its_seeds_and_is_of_the_file_as_it_is(path):
    result = json.loads(path.read_text())
    assert result["stages"] == compare_stages(result["seeds"]) and len(result["seeds"]) >= 3
    file = read_rounds([path.stem])
    assert result["file"] == {key: file.values[key] for key in STAGES}
    steps = list_steps(file)
    assert [row["stage"] for row in result["stages"]] == [step.name for step in steps if step.kind == "evaluate"]
    assert set(result["content"]) == {step.name for step in steps if step.kind == "fit"}
