"""Sources are read from the docstrings of classes, methods and functions."""

from mmrl.experiments.sources import SourcedPart, read_sources

FILE = '''
"""A module, whose Source: line is not that of a part."""

class Loss:
    """Squared error.

    Source: Gauss, "Theoria motus",
    1809.

    Args:
        weight: of a row.
    """

    def reduce(self):
        """Mean over the rows. Source: as `Loss`."""

    def plain(self):
        """Reads `Source:` lines."""
'''


def test_each_part_has_its_first_line_and_its_source(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "loss.py").write_text(FILE)
    (tmp_path / "other.py").write_text(FILE)
    assert read_sources(tmp_path, ["tasks"]) == [
        SourcedPart("Loss", "tasks/loss.py", "Squared error.", 'Gauss, "Theoria motus", 1809.'),
        SourcedPart("Loss.reduce", "tasks/loss.py", "Mean over the rows.", "as `Loss`."),
    ]
