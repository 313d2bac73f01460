"""Write the pages that follow from the methods.

docs/papers/ has every recipe with its paper, status, differences and result; docs/recipes.md a table; docs/columns.md
the columns of a batch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mmrl.experiments.columns_page import render_page
from mmrl.experiments.paper_numbers import replace_numbers
from mmrl.experiments.papers import render_pages

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DOCS / "papers")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    pages = render_pages()
    for file in set(folder.glob("*.md")) - {folder / name for name in pages}:
        file.unlink()  # the page of a theme that is no longer there
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    recipes = DOCS / "recipes.md"
    recipes.write_text(replace_numbers(recipes), encoding="utf-8")
    columns = DOCS / "columns.md"
    columns.write_text(render_page(), encoding="utf-8")
    print(f"written to {folder}, {recipes} and {columns}")


if __name__ == "__main__":
    main()
