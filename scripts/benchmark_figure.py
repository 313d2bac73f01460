"""Draw docs/assets/grpo_step.svg: seconds of a GRPO step beside TRL's, from the table in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from mmrl.evaluation.report.plots import COLOURS

ROOT = Path(__file__).parent.parent
CASES = {
    "long": "512-token prompts,\n16 new tokens",
    "vlm": "one image of 196 tokens,\n16 new tokens",
    "variable": "short prompts,\n15 new tokens on average",
    "short": "6-token prompts,\n64 new tokens",
}
BLUE, GREY = COLOURS[0], "#9aa5ad"


def read_seconds(page: str) -> dict[str, tuple[float, float]]:
    """Seconds of a step of mmrl and of TRL, by case, from the table of figures."""
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page, flags=re.MULTILINE)
    return {case: (float(ours), float(trl)) for case, ours, trl, _ in rows if case in CASES}


def main() -> None:
    seconds = read_seconds((ROOT / "docs" / "benchmarks.md").read_text())
    assert set(seconds) == set(CASES), f"docs/benchmarks.md has figures of {sorted(seconds)}, not of {sorted(CASES)}"
    plt.rcParams.update({"svg.hashsalt": "mmrl", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for place, case in enumerate(reversed(CASES)):
        ours, trl = seconds[case]
        axes.barh(place + 0.19, ours, 0.36, color=BLUE, label="mmrl" if not place else None)
        axes.barh(place - 0.19, trl, 0.36, color=GREY, label="TRL 1.16" if not place else None)
        axes.annotate(f"{ours:.2f} s", (ours, place + 0.19), (4, 0), textcoords="offset points", va="center")
        axes.annotate(f"{trl:.2f} s", (trl, place - 0.19), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(CASES)), reversed(CASES.values()))
    axes.set_xlim(0, 1.12 * max(max(pair) for pair in seconds.values()))
    axes.set_xlabel("seconds of one GRPO step (128 completions; less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    out = ROOT / "docs" / "assets" / "grpo_step.svg"
    figure.savefig(out, metadata={"Date": None}, facecolor="white")
    print(f"written to {out}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
