"""Numbers of the simulation by hand, and what follows from its equations."""

import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "scale"))
import scale_tables  # noqa: E402
from simulate_scale import STRATEGIES, Links, Phases, Work, format_tables, simulate  # noqa: E402

PHASES = Phases(rollout=4.0, learn=6.0, other=1.0)
WORK = Work(weights=8e9, gradients=16e9, blocks=10, updates=2, micro_batches=3)
LINKS = Links(node=4, inside=100e9, between=10e9, latency=0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_process_is_the_phases(strategy):
    found = simulate(PHASES, replace(WORK, rows=8, variation=0.3), LINKS, 1, strategy)
    assert found.iteration == 11 and found.efficiency == 1


def test_ddp_by_hand():
    """Two updates, each reduces 16 GB: 2 * 3/4 * 16 / 100 s in a node, 2 * 7/8 * 16 / 10 s between nodes."""
    inside, between = simulate(PHASES, WORK, LINKS, 4, "ddp"), simulate(PHASES, WORK, LINKS, 8, "ddp")
    assert inside.parts["learn step"] == pytest.approx(2 * 0.24)
    assert between.parts["learn step"] == pytest.approx(2 * 2.8)
    assert between.iteration == pytest.approx(11 + 5.6) and between.efficiency == pytest.approx(11 / 16.6)
    # two thirds of the last of three micro-batches, 6 / 2 / 3 s, hide a part of it
    hidden = simulate(PHASES, WORK, replace(LINKS, overlap=1.0), 8, "ddp")
    assert hidden.parts["learn step"] == pytest.approx(2 * (2.8 - 2 / 3))


def test_fsdp2_by_hand():
    """A gathering is 3/4 * 8 / 100 s; six micro-batches gather twice and reduce 3/4 * 16 / 100 s once."""
    found = simulate(PHASES, WORK, LINKS, 4, "fsdp2")
    assert found.parts["gathering"] == pytest.approx(2 * 0.06)
    assert found.parts["learn step"] == pytest.approx(6 * (2 * 0.06 + 0.12))
    slow = simulate(PHASES, WORK, replace(LINKS, latency=0.01), 4, "fsdp2")  # three steps of ten pieces
    assert slow.parts["gathering"] == pytest.approx(2 * (0.06 + 0.3))
    assert simulate(PHASES, WORK, replace(LINKS, overlap=1.0), 4, "fsdp2").parts["learn step"] == 0


def test_hsdp_gathers_in_a_node_and_reduces_shares_between_nodes():
    found, node = simulate(PHASES, WORK, LINKS, 8, "hsdp"), simulate(PHASES, WORK, LINKS, 4, "fsdp2")
    assert found.parts["gathering"] == node.parts["gathering"]
    between = 2 * 2 * (1 / 2) * (16 / 4) / 10  # two updates, two nodes, a quarter of the gradients
    assert found.parts["learn step"] == pytest.approx(node.parts["learn step"] + between)
    assert simulate(PHASES, WORK, LINKS, 4, "hsdp") == node


def test_phases_end_with_the_slowest_process():
    """The largest of two normal variables is 1 / sqrt(pi) above their mean, of 512 about 3.04."""
    apart = 1 / math.sqrt(math.pi)
    work = replace(WORK, rows=100, variation=0.5)
    learned = math.sqrt((1 / 2 + 0.25) / 50)  # of 100 rows half are in an update, drawn one by one
    found = simulate(PHASES, work, replace(LINKS, node=2), 2, "ddp")
    assert found.parts["waiting"] == pytest.approx(apart * (0.05 * 5 + learned * 6), rel=0.05)
    many = simulate(PHASES, work, replace(LINKS, node=512), 512, "ddp")
    assert many.parts["waiting"] == pytest.approx(3.04 * (0.05 * 5 + learned * 6), rel=0.01)
    equal = simulate(PHASES, replace(work, updates=1, variation=0.0), LINKS, 8, "ddp")
    assert equal.parts["waiting"] == 0


def test_the_share_of_a_process_in_an_update_is_the_one_that_is_drawn():
    """256 rows of two processes are cut into two updates at random, 2000 times."""
    draw = random.Random(0)
    owners = [0] * 128 + [1] * 128
    most = 0.0
    for _ in range(2000):
        draw.shuffle(owners)
        first = sum(owners[:128])
        most += max(first, 128 - first) / 64 / 2000
    work = replace(WORK, rows=128)
    found = simulate(Phases(0.0, 1.0), work, replace(LINKS, inside=math.inf), 2, "ddp")
    assert found.iteration == pytest.approx(most, abs=0.005)


def test_parts_add_up_and_more_nodes_cost_more():
    work = replace(WORK, rows=64, variation=0.3)
    for strategy in STRATEGIES:
        times = [simulate(PHASES, work, LINKS, n, strategy) for n in (8, 64, 512)]
        assert [t.iteration for t in times] == sorted(t.iteration for t in times)
        assert all(sum(t.parts.values()) == pytest.approx(t.iteration) for t in times)


def test_processes_that_are_no_nodes_are_refused():
    with pytest.raises(ValueError, match="whole nodes of 4"):
        simulate(PHASES, WORK, LINKS, 6, "ddp")
    with pytest.raises(ValueError, match="one of ddp, fsdp2, hsdp"):
        simulate(PHASES, WORK, LINKS, 4, "zero")


def test_the_page_shows_what_the_script_prints():
    assert format_tables() in (ROOT / "docs" / "scale.md").read_text()


def test_the_simulation_of_two_processes_is_near_the_measured_learn_step():
    lines = scale_tables.read()
    scaling = next(line for line in scale_tables.select(lines, "scaling") if line["strategy"] == "ddp")
    alone = next(line for line in scale_tables.select(lines, "collectives") if line["strategy"] == "ddp")["alone"]
    learn = median(each["learn"] for each in scaling["seconds"]["one"])
    gradients = 4 * 5_275_392
    links = replace(LINKS, inside=gradients / alone["all_reduce"])  # two processes send it once each way in turn
    work = Work(gradients, gradients, blocks=6, updates=2, rows=128, variation=0.3)
    found = simulate(Phases(0.0, learn), work, links, 2, "ddp").efficiency
    assert found == pytest.approx(scaling["weak"]["learn"], abs=0.04)
    assert f"give {found:.2f} for two processes" in " ".join((ROOT / "docs" / "scale.md").read_text().split())
