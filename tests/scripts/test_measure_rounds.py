"""The comparison of the stages of rounds over seeds, by hand, and the stored results."""

import json

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.receipts import Receipt, write_receipt
from mmrl.commands.rounds.schedule import list_steps
from scripts.measure_rounds import OUT, ROOT, STAGES, compare_baselines, compare_stages, read_budget

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


def test_the_end_is_compared_with_that_of_each_baseline_seed_by_seed():
    # .5 - .4, .7 - .5, .9 - .6: gains .1, .2, .3, as above
    scores = {seed: {"0/a": {"mean": 0.0}, "1/a": {"mean": end}} for seed, end in enumerate((0.5, 0.7, 0.9))}
    others = {seed: {"0/a": {"mean": 1.0}, "1/a": {"mean": end}} for seed, end in enumerate((0.4, 0.5, 0.6))}
    comparison = compare_baselines(scores, {"sft": others})
    assert comparison["sft"]["mean"] == pytest.approx(0.5)
    assert comparison["sft"]["gain"]["mean"] == pytest.approx(0.2)
    assert comparison["sft"]["gain"]["interval"] == pytest.approx([-0.048414, 0.448414], abs=1e-6)


def test_a_budget_counts_completions_and_the_rows_of_all_passes(tmp_path):
    """RFT: 3 passes over 20 rows are 60; its start reads no rows of the rounds."""
    steps = list_steps(read_rounds(["rft"]))
    for step, rows in (("1/grow", 160), ("1/keep", 20), ("1/fit", 20)):
        (tmp_path / step).mkdir(parents=True)
        write_receipt(tmp_path / step, Receipt(result={"rows": rows}))
    assert read_budget(tmp_path, steps) == {"sampled": 160, "learned": 60}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_stored_result_follows_from_its_seeds_and_is_of_the_file_as_it_is(path):
    result = json.loads(path.read_text())
    assert result["stages"] == compare_stages(result["seeds"]) and len(result["seeds"]) >= 3
    file = read_rounds([str(ROOT / place) if (place := result.get("place", path.stem)).endswith(".yaml") else place])
    assert result["file"] == {key: file.values[key] for key in STAGES}
    steps = list_steps(file)
    assert [row["stage"] for row in result["stages"]] == [step.name for step in steps if step.kind == "evaluate"]
    assert set(result["content"]) == {step.name for step in steps if step.kind == "fit"}
