"""Second part of docs/models.md: what trains beside all weights of one process, type by type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from scripts.model_sweep.features import COLUMNS, Features
from scripts.model_sweep.page import PATH

TITLE = "## Adapters, shards, vLLM, videos and experts"
HEAD = f"""{TITLE}

Written by `python scripts/sweep_models.py --features features.json`, of the same tiny checkpoints. An empty cell was
not tried; DDP, FSDP2 and vLLM were tried on a sample. Numbers are the reasons below.

- *VLM*: loaded by `policy=vlm`.
- *LoRA*: `policy.lora.r=2` on the linear layers [that can have adapters](how-to/checkpoint.md#adapters): gradients
  reach the adapters, and merged weights have the same logits.
- *DDP*: scores and gradients of two processes with a copy of the weights and half of the rows each are those of one.
- *FSDP2*: scores and gradients of two processes with sharded weights are those of one.
- *vLLM*: after two transfers to vLLM's CPU build, greedy completions and log-probs are those of the policy within 1e-4
  nats, at sizes that its kernels have. Its environment has an older transformers, and a type that this one computes
  otherwise is refused there before vLLM is asked.
- *video*: prompts with a video are those of transformers; of types whose tiny processor takes videos.
- *freeze_router*, *router_replay*: [as described](how-to/checkpoint.md#mixtures-of-experts). With replay, experts get
  the tokens that were recorded although the routers have changed.
- *load_balancing*: loss and gradients are those of transformers. *expert adapters*: adapters on fused experts, merged,
  exported, and read by peft.
"""
RULE = "|---|---|---|" + "---|" * len(COLUMNS)


def format_features(features: Sequence[Features]) -> str:
    """Format the part: a row for each type, and the reasons by number."""
    notes: dict[str, int] = {}
    ordered = sorted(features, key=lambda each: (each.family != "text", each.kind))
    rows = [_format_row(each, notes) for each in ordered]
    lines = [HEAD, f"| family | type | VLM | {' | '.join(COLUMNS)} |", RULE, *rows, ""]
    return "\n".join([*lines, *(f"{number}. {reason}" for reason, number in notes.items())]) + "\n"


def _format_row(each: Features, notes: dict[str, int]) -> str:
    cells = [_format_cell(each.results.get(name, ""), each.kind, notes) for name in COLUMNS]
    return f"| {each.family} | `{each.kind}` | {'yes' if each.family == 'image' else ''} | {' | '.join(cells)} |"


def _format_cell(result: str, kind: str, notes: dict[str, int]) -> str:
    """Return "yes", nothing, or the number of a reason, which does not name the type."""
    if result in ("", "yes"):
        return result
    reason = re.sub(rf"(?<![\w.]){re.escape(kind)}(_text)?(?!\w)", "this type", PATH.sub("", result)).replace("|", "/")
    reason = re.sub(r"\{'[^{}]*\}", "...", reason)  # sets, whose order differs between runs
    reason = re.sub(r"\s+", " ", reason.replace("<", "&lt;")).strip()
    if len(reason) > 240 and not reason.endswith(" ..."):
        reason = reason[:240].rsplit(" ", 1)[0] + " ..."
    return f"{'yes' if result.startswith('yes') else 'no'} ({notes.setdefault(reason, len(notes) + 1)})"


def replace_part(page: str, part: str) -> str:
    """Replace the part in a page, or append it."""
    return page.partition(f"\n{TITLE}")[0].rstrip() + "\n\n" + part


def find_part(page: str) -> str:
    """Return the part of a page; empty without one."""
    _, title, after = page.partition(TITLE)
    return title + after


def read_features(page: str) -> list[Features]:
    """Read the features that a page states; empty without the part."""
    part = find_part(page)
    reasons = dict(re.findall(r"^(\d+)\. (.*)$", part, flags=re.MULTILINE))
    features = []
    for family, kind, cells in re.findall(r"^\| (text|image) \| `([^`]+)` \|(.*)\|$", part, flags=re.MULTILINE):
        results = {}
        for name, cell in zip(COLUMNS, cells.split("|")[1:], strict=True):
            number = re.search(r"\((\d+)\)", cell)
            if value := reasons[number[1]].replace("&lt;", "<") if number else cell.strip():
                results[name] = value
        features.append(Features(kind, family, results))
    return features


def merge_features(stated: Sequence[Features], measured: Sequence[Features]) -> list[Features]:
    """Replace what was stated by what was measured, column by column; samples of other columns stay."""
    merged = {(each.kind, each.family): dict(each.results) for each in stated}
    for each in measured:
        merged.setdefault((each.kind, each.family), {}).update(each.results)
    return [Features(kind, family, results) for (kind, family), results in merged.items()]


def add_sample(features: Sequence[Features], column: str, results: Mapping[str, str]) -> None:
    """Add the results {"FAMILY:TYPE": result} of a sample of types to a column."""
    for each in features:
        if (result := results.get(f"{each.family}:{each.kind}")) is not None:
            each.results[column] = result
