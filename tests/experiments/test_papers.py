"""docs/papers.md has the result of each recipe and its explanation."""

import json

import yaml

from mmrl.experiments.papers import render_page

PAPER = {"title": "A title", "year": 2024, "source": "arXiv:1", "status": "exact", "differs": "none"}
RESULT = {
    "verdict": "no effect at this scale",
    "effect_over_baseline": 0.01,
    "interval_over_baseline": [-0.02, 0.04],
    "baseline": {"name": "GRPO"},
    "seeds": [{}],
}


def test_a_verdict_is_followed_by_its_reason(tmp_path):
    recipes, experiments, comparisons = (tmp_path / "conf" / name for name in ("recipe", "experiment", "comparison"))
    results = tmp_path / "results"
    for folder in (recipes, experiments, comparisons, results):
        folder.mkdir(parents=True)
    for name, explanation in (("seen", "answers are short"), ("unseen", "not shown"), ("plain", None)):
        (recipes / f"{name}.yaml").write_text(yaml.safe_dump({"paper": PAPER}))
        if explanation:
            (experiments / f"{name}.yaml").write_text(yaml.safe_dump({"explanation": explanation}))
    (results / "seen.json").write_text(json.dumps(RESULT))
    task = {"about": "a task", "metric": "val/x", "overrides": []}
    table = {"title": "A table", "reference": "Plain", "seeds": 1, "overrides": [], "tasks": {"one": task}}
    methods = {"Plain": ["recipe=plain"], "Plain, twice": ["recipe=plain", "data.group_size=2"]}
    (comparisons / "table.yaml").write_text(yaml.safe_dump({**table, "methods": methods}))
    page = render_page(tmp_path / "conf", results)
    sections = {section.partition("\n")[0]: section for section in page.split("\n## ")}
    assert "- result: no effect at this scale: +0.010 [-0.020, +0.040] over GRPO; answers are short" in sections["seen"]
    assert "| [`seen`](#seen) | A title (2024) | exact | no effect at this scale: +0.010 [-0.020, +0.040] over" in page
    assert "- result: not run, `python scripts/reproduce.py unseen`" in sections["unseen"]
    assert "result" not in sections["plain"]
    assert "- compared: [A table](comparisons/table.md)" in sections["plain"] and "compared:" not in sections["seen"]
    assert "| [`plain`](#plain) | A title (2024) | exact | smoke, [compared](comparisons/table.md) |" in page
