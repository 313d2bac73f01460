"""Text to SQL, judged by running the query on SQLite; rows of Spider and BIRD."""

from tasks.sql.rows import SQLRows
from tasks.sql.task import SQL

__all__ = ["SQL", "SQLRows"]
