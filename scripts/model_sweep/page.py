"""docs/models.md: what mmrl does with every model type of transformers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import transformers

from scripts.model_sweep.checks import Outcome

PAGE = "docs/models.md"
HEAD = """# Models of transformers

Written by `python scripts/sweep_models.py` with transformers {version}: a tiny checkpoint of every causal and
image-text type with random weights, loaded by `policy=text` or `policy=vlm` and compared with transformers alone, whose
own attention computes each row by itself. Compared are the log-probs of sampled choices and their scores: rows alone,
padded, with shared and with packed prompts, with pictures of two sizes and without. *exact* is the largest difference
of any of them in nats, with float32 weights. *rows* says what a batch holds: prompts that completions share, rows that
are padded beside longer ones, or rows of equal lengths alone, where padding would change their numbers. *fit* is one
iteration of GRPO; *export* is the difference between the trained policy and its `policy/` folder, read by transformers
in a fresh process.

A type that is refused is refused when it is loaded, with the reason that stands here. "Is no policy that writes text"
are encoder-decoders and classes without `generate`, which their configuration alone shows. "Not tried" are types that
transformers itself does not build, or does not run with a picture, at the sizes that were tried; a checkpoint of such a
type is [compared when it is loaded](how-to/checkpoint.md), as any other is. {counts}

Folders that no type stands for are refused by name too: a type of the folder's own code (`auto_map`), which is never
run, a renamed or missing `model_type`, the name of another type, an unknown kind of layer, and more experts than there
are weights or fewer than a token gets. A folder of a known type with code of its own loads the class of transformers.
"""
PATH = re.compile(r"policy\.path='[^']*' cannot be loaded: |/[\w/.\-]*sweep_models_[\w/.\-]*")


def format_page(outcomes: Sequence[Outcome]) -> str:
    """Format the page: a table row for each type, first those of text."""
    ordered = sorted(outcomes, key=lambda outcome: (outcome.family != "text", outcome.kind))
    counts = Counter(outcome.status for outcome in ordered)
    words = {"exact": "are exact", "refused": "are refused", "not tiny": "were not tried"}
    numbers = ", ".join(f"{counts[status]} {words.get(status, status)}" for status in sorted(counts))
    parts = [HEAD.format(version=transformers.__version__, counts=f"Of {len(ordered)} types {numbers}.")]
    for family, title in (("text", "## Text"), ("image", "## Images and text")):
        rows = [format_row(outcome) for outcome in ordered if outcome.family == family]
        parts.append(
            "\n".join([title, "", "| type | loads | rows | exact | fit | export | reason |", RULE, *rows]) + "\n"
        )
    return "\n".join(parts)


RULE = "|---|---|---|---:|---|---:|---|"


def format_row(outcome: Outcome) -> str:
    """Format the table row of one type."""
    loads = {"refused": "refused", "refused late": "refused", "not tiny": "not tried"}.get(outcome.status, "yes")
    worst = f"{max(outcome.differences.values()):.0e}" if outcome.differences and loads == "yes" else ""
    export = f"{outcome.export:.0e}" if isinstance(outcome.export, float) else ""
    rows = outcome.rows if loads == "yes" else ""
    cells = [f"`{outcome.kind}`", loads, rows, worst, outcome.fit[:20], export, _clean(outcome.reason)]
    return "| " + " | ".join(cells) + " |"


def _clean(reason: str) -> str:
    """One line without places of this run, cut at a word."""
    text = PATH.sub("", reason).replace("|", "/").replace("<", "&lt;")
    return text if len(text) <= 160 else text[:160].rsplit(" ", 1)[0] + " ..."


def list_exact(page: str) -> list[tuple[str, str]]:
    """List the types and families that a page says are exact."""
    text, _, images = page.partition("## Images and text")
    return [
        (match[1], family)
        for family, part in (("text", text), ("image", images))
        for match in re.finditer(r"^\| `([^`]+)` \| yes ", part, flags=re.MULTILINE)
    ]
