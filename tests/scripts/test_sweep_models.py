"""No model type of transformers is silently another model, and none crashes: some types here, all of them when slow."""

import re
from pathlib import Path

import pytest
import transformers

from scripts.model_sweep.checks import EXACT
from scripts.model_sweep.configs import every_type
from scripts.model_sweep.features import measure_types
from scripts.model_sweep.features_page import add_sample, find_part, format_features, replace_part
from scripts.model_sweep.page import PAGE, format_page, list_exact
from scripts.model_sweep.sweep import sweep

ROOT = Path(__file__).parents[2]
ENDS = {"exact", "refused", "not tiny"}
NOT_TINY = 5
"""Types at most of which transformers itself builds or runs no tiny checkpoint."""
EXACT_TEXT = (
    "bloom",
    "deepseek_v4",
    "deepseek_v32",
    "falcon",
    "gemma3_text",
    "gpt2",
    "gpt_oss",
    "llama",
    "mixtral",
    "nemotron_h",
    "qwen2",
    "qwen3_5_text",
)
REFUSED_TEXT = ("rwkv", "musicgen", "roberta", "xlnet")
EXACT_IMAGES = ("ernie4_5_vl_moe", "gemma3", "llava", "qwen3_5", "ovis2", "qwen2_5_omni_thinker", "qwen2_vl")
REFUSED_IMAGES = ("florence2", "kosmos-2")
SOME = {
    **{(kind, "text"): "exact" for kind in EXACT_TEXT},
    **{(kind, "text"): "refused" for kind in REFUSED_TEXT},
    **{(kind, "image"): "exact" for kind in EXACT_IMAGES},
    **{(kind, "image"): "refused" for kind in REFUSED_IMAGES},
}


def rows_of_page():
    """The cells of each row by type and family, as docs/models.md has them."""
    text, _, images = (ROOT / PAGE).read_text().partition("## Images and text")
    rows = {}
    for family, part in (("text", text), ("image", images)):
        for line in part.splitlines():
            if line.startswith("| `"):
                cells = [cell.strip() for cell in line.strip("|").split(" | ")]
                rows[cells[0].strip("| `"), family] = cells
    return rows


def test_some_types_end_as_the_page_says():
    assert len(SOME) == 25
    outcomes = sweep(list(SOME))
    assert {(o.kind, o.family): o.status for o in outcomes} == SOME, [o for o in outcomes if o.status not in ENDS]
    page = rows_of_page()
    for outcome in outcomes:
        loads = page[outcome.kind, outcome.family][1]
        assert loads == ("yes" if outcome.status == "exact" else "refused"), outcome
        if outcome.status == "exact":
            assert outcome.fit == "yes" and max(*outcome.differences.values(), outcome.export) <= EXACT, outcome
        else:
            assert outcome.kind in outcome.reason.replace("_text", "") or "chat template" in outcome.reason, outcome
    assert format_page(outcomes).count("\n| `") == 25


@pytest.mark.slow
def test_no_type_is_silently_another_model():
    outcomes = sweep(every_type())
    assert not [outcome for outcome in outcomes if outcome.status not in ENDS]
    assert sum(outcome.status == "not tiny" for outcome in outcomes) <= NOT_TINY


def test_the_page_has_every_type_of_the_version_that_it_states():
    text = (ROOT / PAGE).read_text()
    version = re.search(r"with transformers ([\d.]+):", text)
    assert version is not None
    if version[1] != transformers.__version__:
        pytest.skip(f"the page is of transformers {version[1]}")
    page = rows_of_page()
    assert set(page) == set(every_type())
    for (kind, _), cells in page.items():
        assert cells[1] in ("yes", "refused", "not tried"), kind
        if cells[1] == "yes":
            assert cells[2] in ("shared", "padded", "equal lengths"), kind
            assert float(cells[3]) <= EXACT and cells[4] == "yes" and float(cells[5]) <= EXACT, kind
        else:
            assert cells[6], f"{kind} has no reason"


def test_features_of_some_types_are_those_of_the_page(tmp_path):
    """Adapters, and what mixtures of experts add; a sample of shards; the page numbers its reasons."""
    types = [("qwen2", "text"), ("jamba", "text"), ("deepseek_v3", "text")]
    features = measure_types(types, tmp_path / "features.json")
    results = {each.kind: each.results for each in features}
    assert results["qwen2"] == {"LoRA": "yes"}
    assert results["jamba"]["LoRA"] == "yes" and results["jamba"]["router_replay"] == "yes"
    assert "no load-balancing loss for deepseek_v3" in results["deepseek_v3"]["load_balancing"]
    part = format_features(features)
    text = (ROOT / PAGE).read_text()
    assert find_part(replace_part(text, part)).strip() == part.strip()
    assert list_exact(replace_part(text, part)) == list_exact(text)
    page = {line.split(" | ")[1].strip("`"): line for line in find_part(text).splitlines() if line.startswith("| text")}
    for line in part.splitlines():
        if line.startswith("| text"):
            kind, *cells = line.strip("|").split("|")[1:]
            of_page = page[kind.strip(" `")].strip("|").split("|")[2:]
            for cell, stored in zip(cells, of_page, strict=True):
                assert cell.split()[:1] in ([], stored.split()[:1]), (kind, cell, stored)
    add_sample(features, "FSDP2", {"text:qwen2": "yes", "image:qwen2": "no"})
    assert features[0].results["FSDP2"] == "yes"


def test_the_second_part_of_the_page_has_every_exact_type():
    text = (ROOT / PAGE).read_text()
    rows = re.findall(r"^\| (text|image) \| `([^`]+)` \|(.*)\|$", find_part(text), flags=re.MULTILINE)
    assert {(kind, family) for family, kind, _ in rows} == set(list_exact(text))
    reasons = len(re.findall(r"^\d+\. ", find_part(text), flags=re.MULTILINE))
    for _, kind, cells in rows:
        for cell in map(str.strip, cells.split("|")):
            number = re.fullmatch(r"(?:yes|no) \((\d+)\)", cell)
            assert cell in ("", "yes") or (number and 1 <= int(number[1]) <= reasons), (kind, cell)
