"""Write docs/papers.md: every recipe with its paper, status, differences and result."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmrl.experiments.papers import render_page

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "papers.md")
    options = parser.parse_args()
    options.out.write_text(render_page(ROOT / "conf", ROOT / "docs" / "results"))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
