"""Efficiencies by hand, the bytes of a real run's collectives, and the page's tables."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "scale")]
import scale_tables  # noqa: E402
from bench_scale import compare, compare_ways, measure_decoding  # noqa: E402
from benchmark.scale import SIZES, Launcher, Run, override  # noqa: E402
from scale_figure import OUT, draw  # noqa: E402


def run(rollout, learn, *ranks):
    watched = [{"tokens": tokens, "learned": learned} for tokens, learned in ranks]
    return Run(Path("none"), {"rollout": rollout, "learn": learn}, watched)


def test_efficiencies_by_hand():
    """The second round is slower in everything by a half, which ratios within a round do not see."""
    rounds = (1.0, 1.5, 1.0)
    found = compare(
        {
            "one": [run(1.0 * k, 2.0 * k) for k in rounds],
            "whole": [run(1.8 * k, 4.0 * k) for k in rounds],
            "beside": [run(1.1 * k, 2.1 * k) for k in rounds],
            "two": [run(1.25 * k, 2.5 * k, ([9, 30, 10], [0] * 3 + [8] * 6), ([9, 10, 30], [0] * 9)) for k in rounds],
        }
    )
    assert found["weak"] == {"rollout": 0.8, "learn": 0.8, "iteration": 0.8}
    assert found["strong"] == {"rollout": 0.72, "learn": 0.8, "iteration": pytest.approx(5.8 / 7.5, abs=1e-3)}
    assert found["beside"]["rollout"] == pytest.approx(1 / 1.1, abs=1e-3)
    assert found["of_beside"]["learn"] == 0.84
    assert found["balance"] == {"tokens": 1.5, "learned": 2.0}  # the first iteration does not count


def test_words_replace_those_with_the_same_key():
    assert override(["a=1", "b=2"], ["b=3", "c=4"]) == ["a=1", "b=3", "c=4"]
    launcher = Launcher(Path("none"), "cuda", SIZES["5m"], 4)
    words = launcher.words("hsdp", 4, "data.num_minibatches=1")
    assert words.count("data.num_minibatches=1") == 1 and "data.num_minibatches=2" not in words
    assert {"trainer.accelerator=gpu", "trainer.devices=4", "strategy.shard_size=2", "trainer.max_epochs=4"} <= set(
        words
    )


@pytest.mark.skipif(shutil.which("taskset") is None, reason="processes are kept on cores by taskset")
def test_two_sharded_processes_gather_weights_twice_an_update_and_reduce_gradients_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", quick_python())
    more = ("data.num_prompts=2", "data.group_size=2", "data.sampling.max_tokens=4")
    launcher = Launcher(tmp_path, "cpu", SIZES["tiny"], 2)
    found = launcher.run("fsdp2", 2, *more, collectives=True)
    one = sum(rank["held"]["weights"] for rank in found.ranks)
    for rank in found.ranks:
        held = rank["held"]
        assert held["weights"] == held["gradients"] and sum(held.values()) <= 0.55 * 4 * one
        learn, updates = rank["used"]["learn"], 2
        assert learn["all_gather"]["bytes"] == pytest.approx(updates * 2 * one, rel=0.02)
        assert learn["reduce_scatter"]["bytes"] == pytest.approx(updates * one, rel=0.02)
        assert learn["copies"]["calls"] > 0
        assert rank["used"]["collect"]["all_gather"]["bytes"] == pytest.approx(2 * one, rel=0.1)
    assert found.seconds["learn"] > 0 and 1 <= found.balance("tokens") <= 2


def test_ways_of_decoding_are_compared_by_hand():
    """The slower process counts in each round; the second round is slower in everything."""
    one = {
        "gathered": {"seconds": [1.0, 2.0, 1.0], "cpu": [0.5, 0.5, 0.5], "bytes": 100, "calls": 3},
        "aligned": {"seconds": [3.0, 5.0, 2.0], "cpu": [1.0, 1.5, 2.0], "bytes": 3000, "calls": 65},
        **{"parameters": 9, "rows": 2, "steps": 32},
    }
    other = {**one, "gathered": {**one["gathered"], "seconds": [1.5, 1.0, 0.5]}}
    found = compare_ways([one, other])
    assert found["gathered"]["seconds"] == [1.5, 2.0, 1.0] and found["steps"] == 32
    assert found["ratio"] == {"seconds": 2.0, "cpu": 3.0, "bytes": 30.0}  # of 2, 2.5, 2 and of 2, 3, 4


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("taskset") is None, reason="processes are kept on cores by taskset")
def test_aligned_decoding_gathers_each_block_in_every_step(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", quick_python())
    launcher = Launcher(tmp_path, "cpu", [*SIZES["tiny"], "data.group_size=2", "data.sampling.max_tokens=4"], 1)
    (found,) = measure_decoding(launcher, prompts=2, rounds=1)
    assert found["rows"] == 4 and found["steps"] == 4
    gathered, aligned = found["gathered"], found["aligned"]
    assert gathered["calls"] == 3 and aligned["calls"] == 1 + 2 * 4  # two blocks, and the other weights once
    assert gathered["bytes"] == pytest.approx(4 * found["parameters"], rel=0.02)
    assert 3.5 < found["ratio"]["bytes"] < 4


def test_the_page_shows_the_stored_measurements():
    page, lines = (ROOT / "docs" / "scale.md").read_text(), scale_tables.read()
    for table in scale_tables.TABLES:
        assert table(lines) in page, table.__name__
    shares = {(line["strategy"], line["processes"]): line["share"] for line in scale_tables.select(lines, "memory")}
    assert shares["fsdp2", 2] <= 0.55 and shares["fsdp2", 4] <= 0.3


def test_the_picture_is_the_one_that_the_script_draws():
    assert OUT.read_text() == draw()
