"""Plant faults in the code of methods and count those that their tests notice: python scripts/plant_faults.py NAME ...

NAME is a theme or a method of mmrl/methods (losses, losses/pacs, agents/epo); all by default. A fault is one wrong
sign, exponent, denominator, bound, comparison, mask, branch or cut of a gradient in one function. Tests of a method are
the files that bear its name or import it. They are imported and run once; then every fault runs, in a forked process
where the functions have the changed code, the tests that reach its line until one fails. mutmut 3.8
and cosmic-ray 8.7 do less here: neither drops a `.detach()` or a mask, or cuts a gradient; mutmut counts changed texts
and arguments of any call, and works on a copy of the repository; cosmic-ray starts Python for every fault, 5 to 9
seconds with the imports of mmrl.

Prints the faults that no test notices, and a table. Faults that change nothing that can be observed stand with a reason
in scripts/faults/equivalent.yaml and are not counted, nor are those that only mix types. A fault is planted once the
module is imported: what a test module computes with the method while it is imported is right.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402
import yaml  # noqa: E402
from faults.runner import METHODS, OTHER_TYPE, ROOT, SURVIVED, Result, Runner, Source  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"
EQUIVALENT = ROOT / "scripts" / "faults" / "equivalent.yaml"
GOAL = 0.95  # of the faults; the script ends with 1 where fewer are noticed


def find_sources(names: list[str]) -> list[Source]:
    paths = [path for path in sorted(METHODS.rglob("*.py")) if path.name != "__init__.py"]
    for name in names:
        if not any(_is_of(path, name) for path in paths):
            raise SystemExit(f"{name}: no theme and no method of {METHODS}; write losses, or losses/pacs")
    return [Source(path) for path in paths if not names or any(_is_of(path, name) for name in names)]


def _is_of(path: Path, name: str) -> bool:
    return f"{path.relative_to(METHODS).with_suffix('')}/".startswith(f"{name}/")


def plant(sources: list[Source], seconds: float, tests: list[str]) -> dict[str, list[Result]]:
    """Results by source."""
    runner = Runner(sources, seconds)
    files = tests or sorted({str(path) for source in sources for path in source.test_files()})
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not vllm", "--capture=no", "-qqq"]
    pytest.main([*options, *files], plugins=[runner])
    return runner.results


def count(results: dict, equivalent: dict[str, dict[str, str]]) -> tuple[dict[str, Counter], list[str]]:
    """(caught and planted by method, lines about survivors and about wrong entries of `equivalent`)."""
    table: dict[str, Counter] = defaultdict(Counter)
    lines = []
    for name, faults in results.items():
        reasons = dict(equivalent.get(name, {}))
        for fault, code, tests in faults:
            place, key = f"mmrl/methods/{name}.py:{fault.line}", f"{fault.function}: {fault.change}"
            row = table["/".join(name.split("/")[:2])]
            if code == OTHER_TYPE:
                continue
            if code == SURVIVED and reasons.pop(key, None) is not None:
                row.update(equivalent=1)
                continue
            row.update(planted=1, caught=int(code != SURVIVED))
            if code == SURVIVED:
                lines.append(f"{place} {key} ({tests} tests reach it)")
        lines += [f"{EQUIVALENT.name}: {name}: {key!r} is caught or is no fault" for key in reasons]
    return table, lines


def write_rows(table: dict[str, Counter]) -> None:
    """Replace the rows of these methods on the page."""
    head, line, rows = PAGE.read_text().rpartition("|---|---|---|---|---|\n")
    cells = {row.split(" | ")[0].strip("| "): row for row in rows.splitlines()}
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for name, row in table.items():
        cells[name] = f"| {name} | {row['caught']} | {row['planted']} | {row['equivalent']} | {commit} |"
    PAGE.write_text(head + line + "".join(f"{row}\n" for _, row in sorted(cells.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="themes or methods; all by default")
    parser.add_argument("--seconds", type=float, default=1.0, help="of CPU time: tests that take longer are left out")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="in place of the methods' own")
    parser.add_argument("--write", action="store_true", help="the rows of the methods into docs/faults.md")
    options = parser.parse_args()
    results = plant(find_sources(options.names), options.seconds, options.tests)
    table, lines = count(results, yaml.safe_load(EQUIVALENT.read_text()) or {})
    print(*lines, sep="\n")
    for name, row in sorted(table.items()):
        print(f"{name:40} {row['caught']:5} of {row['planted']:5}")
    total = sum(table.values(), Counter())
    share = total["caught"] / max(total["planted"], 1)
    print(f"{'all':40} {total['caught']:5} of {total['planted']:5}: {share:.1%}")
    if options.write:
        write_rows(table)
    raise SystemExit(share <= GOAL)


if __name__ == "__main__":
    main()
