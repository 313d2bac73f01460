"""The page of papers says what a proof found and, where it found nothing, what that is put down to."""

import json

import yaml

from mmrl.experiments.papers import page

PAPER = {"title": "A title", "year": 2024, "source": "arXiv:1", "status": "exact", "differs": "none"}
PROOF = {
    "verdict": "no effect at this scale",
    "effect_over_baseline": 0.01,
    "interval_over_baseline": [-0.02, 0.04],
    "baseline": {"name": "GRPO"},
    "seeds": [{}],
}


def test_a_verdict_is_followed_by_its_reason(tmp_path):
    recipes, proofs = tmp_path / "conf" / "recipe", tmp_path / "proofs"
    recipes.mkdir(parents=True)
    proofs.mkdir()
    for name, prove in (("seen", {"why": "answers are short"}), ("unseen", {"why": "never read"}), ("plain", None)):
        (recipes / f"{name}.yaml").write_text(yaml.safe_dump({"paper": PAPER, "prove": prove}))
    (proofs / "seen.json").write_text(json.dumps(PROOF))
    rows = {row.split("`")[1]: row for row in page(tmp_path / "conf", proofs).splitlines() if row.startswith("| `")}
    assert "no effect at this scale: +0.010 [-0.020, +0.040] over GRPO; answers are short |" in rows["seen"]
    assert rows["unseen"].endswith("not run: `python scripts/prove.py unseen` |") and rows["plain"].endswith("|  |")
