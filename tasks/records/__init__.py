"""Risk of patients from a table of measurements, with the columns that matter."""

from tasks.records.task import Records

__all__ = ["Records"]
