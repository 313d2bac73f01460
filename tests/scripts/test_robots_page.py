"""docs/robots.md follows from the stored results; frames are joined in order."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "robots"))
import robots_page as page  # noqa: E402
from robot_frames import join_frames  # noqa: E402
from robot_perturbations import read_perturbations, store_perturbation  # noqa: E402


def test_the_page_is_current():
    """Where this fails: python scripts/robots/robots_page.py."""
    assert page.PAGE.read_text() == page.render_page()
    protocols = page.read_protocols()
    assert all((page.FOLDER / "robots" / f"{recipe}.png").exists() for recipe in protocols)


def test_frames_are_joined_from_the_first_to_the_last():
    frames = [np.full((2, 2, 3), i, np.uint8) for i in range(11)]
    strip = join_frames(frames, 6)
    assert strip.shape == (2, 12, 3) and strip[0, ::2, 0].tolist() == [0, 2, 4, 6, 8, 10]


def write_measurement(run, perturbation, after):
    """Write what `mmrl evaluate` writes of a run with seed 4: 3 of 10 before, `after` of 10 after."""
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text("seed_everything: 4\n")
    suite = {"task": "libero"} if perturbation is None else {"perturbation": perturbation}
    (run / "protocol.json").write_text(json.dumps({"entries": {"suite": suite}}))
    rows = {"before": {"mean": 0.3, "lower": 0.1078, "upper": 0.6032, "n": 10.0}}  # Wilson of 3 of 10
    rows["after"] = {"mean": after / 10, "lower": 0.3968, "upper": 0.8922, "n": 10.0}
    metrics = {side: {"sampled": {"success": row}} for side, row in rows.items()}
    measured = {"protocol": "d14f5696f79e", "decodes": {"sampled": {}}, "metrics": metrics}
    (run / "evaluation.json").write_text(json.dumps(measured))


def test_a_measured_perturbation_is_stored_once_and_tabulated(tmp_path):
    for perturbation, after in (("position", 5), ("language", 7), ("position", 7)):
        write_measurement(tmp_path / "run", perturbation, after)
        store_perturbation("flow_ppo_metaworld", tmp_path / "run", tmp_path / "robots")
    stored = read_perturbations(tmp_path / "robots")
    assert [row["perturbation"] for row in stored] == ["language", "position"]
    cells = ["`flow_ppo_metaworld`", "position", "4", "30.0 [10.8, 60.3]", "70.0 [39.7, 89.2]", "10", "`d14f5696f79e`"]
    assert page.format_perturbation(stored[1]) == cells
    assert f"| {' | '.join(cells)} |" in page.render_page(tmp_path).splitlines()


def test_a_measurement_without_a_perturbation_is_refused(tmp_path):
    write_measurement(tmp_path / "run", None, 7)
    with pytest.raises(ValueError, match=r"sim\.perturbation=position"):
        store_perturbation("flow_ppo_metaworld", tmp_path / "run", tmp_path / "robots")
