"""Tables of docs/scale.md from what bench_scale.py measured: python scripts/scale/scale_tables.py [FILE].

FILE has the JSON lines of bench_scale.py; default: docs/results/scale/cpu.jsonl.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

MEASURED = Path(__file__).parents[2] / "docs" / "results" / "scale" / "cpu.jsonl"
Line = dict[str, Any]
NAMES = {"rollout": "collection", "learn": "learn", "iteration": "iteration"}
MIB = 1 << 20


def read(path: Path = MEASURED) -> list[Line]:
    """Read the lines of measurements."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def select(lines: Iterable[Line], measurement: str) -> list[Line]:
    return [line for line in lines if line["measurement"] == measurement]


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table whose first two columns are words and the others numbers."""
    rule = ["---", "---", *("---:" for _ in head[2:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, *rows)).replace(
        f"| {' | '.join(head)} |\n", f"| {' | '.join(head)} |\n|{'|'.join(rule)}|\n", 1
    )


def scaling_table(lines: list[Line]) -> str:
    head = (
        *("strategy", "phase", "one process, s", "two, s", "weak", "strong"),
        *("one / two runs side by side", "two runs side by side / two processes"),
    )
    rows = []
    for line in select(lines, "scaling"):
        strategy = " ".join(f"`{word}`" for word in (line["strategy"], *line["settings"]["word"]))
        for phase, name in NAMES.items():
            one, two = (median(each[phase] for each in line["seconds"][runs]) for runs in ("one", "two"))
            ratios = [f"{line[kind][phase]:.2f}" for kind in ("weak", "strong", "beside", "of_beside")]
            rows.append((strategy, name, f"{one:.2f}", f"{two:.2f}", *ratios))
    return format_table(head, rows)


def memory_table(lines: list[Line]) -> str:
    head = (
        *("parameters", "strategy", "processes", "weights, gradients, optimiser: MiB", "of one process's"),
        *("peak resident, MiB", "planned, MiB", "measured / planned"),
    )
    rows = []
    for line in select(lines, "memory"):
        sizes = [sum(line["held"].values()), line["peak"], line["planned"]]
        state, peak, planned = (f"{size / MIB:,.0f}" for size in sizes)
        name = "one process" if line["strategy"] == "single" else f"`{line['strategy']}`"
        share, ratio = f"{line['share']:.3f}", f"{line['ratio']:.2f}"
        rows.append((f"{line['parameters']:,}", name, str(line["processes"]), state, share, peak, planned, ratio))
    return format_table(head, rows)


def collectives_table(lines: list[Line]) -> str:
    head = ("strategy", "phase and kind", "processes", "calls", "MB", "waiting, ms", "transfer, ms")
    rows = []
    for line in select(lines, "collectives"):
        for phase, kinds in line["used"].items():
            for kind, used in kinds.items():
                if used["bytes"] < 1e5 and used["wait"] + used["transfer"] < 0.01:
                    continue
                name = f"{'collection' if phase == 'collect' else phase}, {kind.replace('_', '-')}"
                times = [f"{1000 * used[key]:.0f}" for key in ("wait", "transfer")] if "alone" in line else ["", ""]
                numbers = (f"{used['calls']:.0f}", f"{used['bytes'] / 1e6:.1f}", *times)
                rows.append((f"`{line['strategy']}`", name, str(line["processes"]), *numbers))
    return format_table(head, rows)


def alone_table(lines: list[Line]) -> str:
    head = ("strategy", "collective of two processes", "ms")
    rows = []
    for line in select(lines, "collectives"):
        for name, seconds in line.get("alone", {}).items():
            rows.append((f"`{line['strategy']}`", name.replace("_", "-"), f"{1000 * seconds:.0f}"))
    return format_table(head, rows)


def plan_table(lines: list[Line]) -> str:
    head = ("strategy", "phase", "measured, s", "planned, s", "measured / planned")
    rows = []
    for line in select(lines, "plan"):
        for phase, name in NAMES.items():
            numbers = [f"{line[kind][phase]:.2f}" for kind in ("measured", "planned", "ratio")]
            rows.append((f"`{line['strategy']}`", name, *numbers))
    return format_table(head, rows)


def decoding_table(lines: list[Line]) -> str:
    head = ("parameters", "weights of a block", "s", "CPU s", "gathers", "MB gathered", "MB a step", "s", "CPU s", "MB")
    head = (*head[:7], *(f"{name}, of gathered once" for name in head[7:]))
    names = {"gathered": "gathered once", "aligned": "gathered in every step"}
    rows = []
    for line in select(lines, "decoding"):
        ratios = {"gathered": ("1", "1", "1"), "aligned": tuple(f"{line['ratio'][key]:.2f}" for key in RATIOS)}
        for way, name in names.items():
            used = line[way]
            times = [f"{median(used[key]):.2f}" for key in ("seconds", "cpu")]
            moved = [f"{size / 1e6:,.1f}" for size in (used["bytes"], used["bytes"] / line["steps"])]
            rows.append((f"{line['parameters']:,}", name, *times, f"{used['calls']:,}", *moved, *ratios[way]))
    return format_table(head, rows)


RATIOS = ("seconds", "cpu", "bytes")
TABLES = (scaling_table, collectives_table, alone_table, plan_table, memory_table, decoding_table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=MEASURED, metavar="FILE", help="lines of bench_scale.py")
    lines = read(parser.parse_args().file)
    print("\n".join(table(lines) for table in TABLES), end="")


if __name__ == "__main__":
    main()
