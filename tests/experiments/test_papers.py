"""A page of docs/papers has the result of each recipe and its explanation."""

import json

import yaml

from mmrl.config.option_files import CONF
from mmrl.experiments.papers import (
    STATUS,
    Sources,
    find_compared,
    find_page,
    read_themes,
    render_pages,
    render_theme,
)

PAPER = {"title": "A title", "year": 2024, "source": "arXiv:1", "status": "exact", "differs": "none"}
RESULT = {
    "verdict": "no effect at this scale",
    "effect_over_baseline": 0.01,
    "interval_over_baseline": [-0.02, 0.04],
    "baseline": {"name": "GRPO", "seeds": [{"after": 0.5}] * 3},
    "seeds": [{"after": 0.5}, {"after": 0.51}, {"after": 0.52}],
}


def test_a_verdict_is_followed_by_its_reason(tmp_path):
    experiments, comparisons = (tmp_path / "conf" / name for name in ("experiment", "comparison"))
    results = tmp_path / "results"
    for folder in (experiments, comparisons, results / "recipes"):
        folder.mkdir(parents=True)
    for name, explanation in (("seen", "answers are short"), ("unseen", "not shown"), ("plain", None)):
        if explanation:
            (experiments / f"{name}.yaml").write_text(yaml.safe_dump({"explanation": explanation}))
    (results / "recipes" / "seen.json").write_text(json.dumps(RESULT))
    task = {"about": "a task", "metric": "val/x", "overrides": []}
    table = {"title": "A table", "reference": "Plain", "seeds": 1, "overrides": [], "tasks": {"one": task}}
    methods = {"Plain": ["recipe=plain"], "Plain, twice": ["recipe=plain", "data.group_size=2"]}
    (comparisons / "table.yaml").write_text(yaml.safe_dump({**table, "methods": methods}))
    seen = {
        "iterations": 3,
        "acts": {"rollout/hints": [1, 12.0], "Replay": [2, 40.0]},
        "problems": [],
        "stopped": False,
    }
    records = {"seen": seen, "plain": {**seen, "problems": ["no rows in 1 of 3 iterations, the first of them 2"]}}
    records["late"] = {**records["plain"], "stopped": True}
    sources = Sources(tmp_path / "conf", results, find_compared(tmp_path / "conf"), records)
    page = render_theme("losses", dict.fromkeys(("seen", "unseen", "plain", "late"), PAPER), sources)
    sections = {section.partition("\n")[0]: section for section in page.split("\n## ")}
    assert "- result: no effect at this scale: +0.010 [-0.020, +0.040] over GRPO; answers are short" in sections["seen"]
    row = "| [`seen`](#seen) | A title (2024) | exact | yes: `rollout/hints` 12 | no effect at this scale: +0.010"
    assert row in page
    assert "- result: not run, `python scripts/reproduce.py unseen`" in sections["unseen"]
    assert "- result" not in sections["plain"]
    assert "- compared: [A table](../comparisons/table.md)" in sections["plain"] and "compared:" not in sections["seen"]
    assert "| [`plain`](#plain) | A title (2024) | exact | no | [compared](../comparisons/table.md) |  |" in page
    assert "| [`unseen`](#unseen) | A title (2024) | exact | not run | not run |  |" in page
    assert "| [`late`](#late) | A title (2024) | exact | stopped early | none |  |" in page
    assert "- acts: yes, in 3 iterations at its defaults: `rollout/hints` 12, `Replay` 40" in sections["seen"]
    assert "- acts: no, in 3 iterations at its defaults: no rows in 1 of 3 iterations" in sections["plain"]


def test_every_recipe_is_on_the_page_of_its_methods_folder():
    themes = read_themes()
    assert sum(map(len, themes.values())) == len(list((CONF / "recipe").rglob("*.yaml")))
    assert set(themes) == {folder.name for folder in (CONF / "method").iterdir()}
    assert "clip_delta" in themes["advantages"] and find_page("grpo_browser") == "losses.md#grpo_browser"
    headers = [paper for papers in themes.values() for paper in papers.values()]
    assert all({"title", "source", "status", "differs"} <= set(paper) for paper in headers)


def test_a_recipe_has_the_paper_of_its_method_and_what_it_says_itself():
    paper = read_themes()["losses"]["grpo_browser"]
    assert paper["title"].startswith("DeepSeekMath") and paper["status"] == "variant" and "click" in paper["differs"]


def test_every_status_in_use_is_defined_on_the_index():
    statuses = {paper["status"] for papers in read_themes().values() for paper in papers.values()}
    rows = [line for line in render_pages()["index.md"].splitlines() if line.startswith("| ")]
    assert statuses <= STATUS.keys() and all(f"| {status} | {text} |" in rows for status, text in STATUS.items())


def test_what_differs_in_an_extended_method_is_on_the_page():
    """SAPO and CISPO extend GRPO, the second by way of the clip of DAPO."""
    themes = read_themes()
    assert list(themes["losses"]["cispo"]["inherited"]) == ["dapo_clip", "grpo"]
    page = render_theme("losses", themes["losses"], Sources())
    text = themes["losses"]["grpo"]["differs"]
    assert (
        themes["losses"]["grpo"]["inherited"] == {} and page.count(f"- `grpo`, which it extends, differs: {text}") > 5
    )
