from pathlib import Path

from mmrl.columns import table
from mmrl.proofs.stored import table as proofs

DOCS = Path(__file__).parent.parent / "docs"


def test_the_data_dictionary_is_current():
    assert (DOCS / "columns.md").read_text().endswith("\n\n" + table())


def test_the_readme_shows_proofs_as_they_are_stored():
    measured = (DOCS.parent / "README.md").read_text().split("## Measured")[1].split("## Licence")[0]
    rows = [line for line in measured.splitlines() if line.startswith("| `")]
    assert rows and set(rows) <= set(proofs().splitlines())
