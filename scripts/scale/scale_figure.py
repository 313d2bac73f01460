"""Draw docs/assets/strategies.svg, what a process holds under each strategy: python scripts/scale/scale_figure.py."""

from __future__ import annotations

import argparse
from pathlib import Path

OUT = Path(__file__).parents[2] / "docs" / "assets" / "strategies.svg"
PROCESSES = 4
PANELS = (
    ("ddp", "strategy=ddp", 1),
    ("fsdp2", "strategy=fsdp2", 4),
    ("fsdp2 in nodes of two (HSDP)", "strategy=fsdp2 strategy.shard_size=2", 2),
)
"""Title, words and the processes over which the weights are divided."""
HELD = ("weights", "gradients", "optimiser state", "reference")
SAMPLING = "weights while sampling"
INK, SOFT, LINE = "#1c262b", "#3c4b54", "#44606e"
SHARES = ("#44606e", "#c98a2e", "#6f9a5d", "#a15c7a")
"""One colour for each part of the weights; what every process holds whole has the first."""
WIDTH, LEFT, PANEL, CELL, GAP, ROW = 940, 170, 252, 50, 8, 40


def draw() -> str:
    """Return the picture as SVG."""
    height = 92 + ROW * (len(HELD) + 1) + 76
    label = "What each of four processes holds: all with ddp, a quarter with fsdp2, a half with fsdp2 and shard_size=2"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" fill="{INK}" role="img" aria-label="{label}">',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12" fill="#fbfcfc" stroke="#d5dde1"/>',
    ]
    for row, name in enumerate((*HELD, SAMPLING)):
        parts.append(_text(LEFT - 14, _top(row) + 20, name, 14, "end", SOFT))
    for number, panel in enumerate(PANELS):
        parts += _panel(LEFT + number * PANEL, *panel)
    notes = (
        "Four processes; a colour is a part, a full box is all of it. With fsdp2 the learn step gathers the weights "
        "block by block; sampling,",
        "scoring and evaluation gather all of them once. HSDP keeps a copy in every node, and sums the gradients of "
        "equal parts over the nodes.",
    )
    parts += [_text(24, height - 40 + 20 * i, note, 13, "start", SOFT) for i, note in enumerate(notes)]
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, title: str, words: str, shards: int) -> list[str]:
    parts = [_text(left, 34, title, 16, "start", INK, bold=True), _text(left, 54, words, 11, "start", SOFT)]
    for process in range(PROCESSES):
        x = left + process * (CELL + GAP)
        parts.append(_text(x + CELL / 2, 78, f"rank {process}", 11, "middle", SOFT))
        for row in range(len(HELD) + 1):
            whole = shards == 1 or row == len(HELD)
            parts += _cell(x, _top(row), shards, None if whole else process % shards)
    if shards == 2:  # nodes
        for node in range(2):
            x = left + node * 2 * (CELL + GAP) - 3
            size = f'width="{2 * CELL + GAP + 6}" height="{_top(len(HELD) + 1) - 64}"'
            parts.append(f'<rect x="{x}" y="62" {size} rx="6" fill="none" stroke="{LINE}" stroke-dasharray="4 3"/>')
    return parts


def _cell(x: float, y: float, shards: int, held: int | None) -> list[str]:
    """A box with the parts that are held; None holds all."""
    width = CELL / shards
    parts = []
    for shard in range(shards):
        if held in (None, shard):
            colour = SHARES[shard]
            parts.append(f'<rect x="{x + shard * width}" y="{y}" width="{width}" height="28" fill="{colour}"/>')
    return [*parts, f'<rect x="{x}" y="{y}" width="{CELL}" height="28" rx="3" fill="none" stroke="{LINE}"/>']


def _top(row: int) -> float:
    """The last row is apart: it is held for a while only."""
    return 90 + row * ROW + (8 if row == len(HELD) else 0)


def _text(x: float, y: float, text: str, size: int, anchor: str, fill: str, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight} text-anchor="{anchor}" fill="{fill}">{text}</text>'


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    OUT.write_text(draw())
