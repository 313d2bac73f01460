"""Problems from a user's data set."""

from tasks.dataset.task import DatasetTask

__all__ = ["DatasetTask"]
