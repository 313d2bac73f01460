"""Every recipe with its paper, how close it is, how to run it, and what its proof says, as a Markdown page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF
from mmrl.experiments.stored import FOLDER, proof_of, told

HEADERS = ("recipe", "command", "paper", "card", "status", "what differs", "proof")


def page(conf: Path = CONF, proofs: Path = FOLDER) -> str:
    """docs/papers.md."""
    rows = [_row(path, proofs) for path in sorted((conf / "recipe").glob("*.yaml"))]
    lines = [f"| {' | '.join(HEADERS)} |", "|" + "---|" * len(HEADERS), *rows]
    return (
        "# Papers\n\n"
        "Made by `python scripts/paper_index.py`; a test checks it.\n"
        "`python scripts/prove.py NAME` its proof: method and named baseline at equal budget over seeds, with a\n"
        "Student 95 % interval of the paired difference, or of the gain over the start where no baseline is named.\n"
        "[proofs/](proofs) holds every seed.\n\n" + "\n".join(lines) + "\n"
    )


def _row(path: Path, proofs: Path) -> str:
    node = yaml.safe_load(path.read_text())
    paper = node["paper"]
    year = f" ({paper['year']})" if paper.get("year") else ""
    title = f"{paper['title']}{year}; {paper['source']}"
    cells = (
        f"`{path.stem}`",
        f"`mmrl fit recipe={path.stem}`",
        title,
        str(paper.get("card", "")),
        paper["status"],
        paper["differs"],
    )
    return f"| {' | '.join(_plain(cell) for cell in (*cells, _proof(path.stem, node, proofs)))} |"


def _proof(recipe: str, node: dict[str, Any], proofs: Path) -> str:
    proof = proof_of(recipe, proofs)
    if proof is not None:
        drawn = f" ([figure](proofs/{recipe}.png))" if (proofs / f"{recipe}.png").exists() else ""
        why = (node.get("prove") or {}).get("why")
        return f"{told(proof)}{drawn}{f'; {why}' if why else ''}"
    return f"not run: `python scripts/prove.py {recipe}`" if node.get("prove") else ""


def _plain(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")
