from pathlib import Path

from mmrl.columns import table

DOCS = Path(__file__).parent.parent / "docs"


def test_the_data_dictionary_is_current():
    assert (DOCS / "columns.md").read_text().endswith("\n\n" + table())
