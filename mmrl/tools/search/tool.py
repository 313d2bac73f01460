"""DocumentSearch: BM25 search over a folder of documents, as a tool of the policy."""

from __future__ import annotations

from functools import lru_cache

from mmrl.core.errors import check_at_least, check_positive
from mmrl.tools.base import BadArguments, Tool, ToolError
from mmrl.tools.search.documents import Document, Passage, list_documents, read_passages
from mmrl.tools.search.index import BM25Index, find_words

KEY = "rollout.tools.search.path"
MAX_QUERY = 1000
MAX_WORDS = 32
"""Characters of a query, and distinct words of it that are searched for."""


class NothingFound(ToolError):
    """No passage has a word of the query."""


class QueryTooLong(ToolError):
    """The query has more characters or words than are searched for."""


class SearchTooSlow(ToolError):
    """The search took longer than its time limit."""


class DocumentSearch(Tool):
    """Returns the passages of a folder's documents that fit a query best, by BM25.

    The files are read and indexed when the tool is built; tools of one folder share the index. A result has the source
    of each passage in brackets before its text, and an empty line between passages.

    Args:
        path: folder with .txt, .md or .jsonl files, subfolders included, or one such file.
        top: number of passages of a result.
        passage_chars: maximum length of a passage.
        sources: whether the file of each passage is shown.
        search_s: time limit of a search.
        max_chars: of a result; longer ones are truncated.
    """

    def __init__(
        self,
        path: str,
        top: int = 3,
        passage_chars: int = 600,
        sources: bool = True,
        search_s: float = 5.0,
        max_chars: int = 2000,
    ):
        check_at_least(1, "rollout.tools.search:", top=top, passage_chars=passage_chars, max_chars=max_chars)
        check_positive("rollout.tools.search:", search_s=search_s)
        self.index = _build_index(list_documents(path, KEY), passage_chars)
        self.top, self.sources, self.search_s, self.max_chars = top, sources, search_s, max_chars
        self.timeout_s = 10 * search_s  # searches of other threads come first

    def run(self, query: str) -> str:  # type: ignore[override]
        """
        Search the documents.

        Args:
            query: words that the passage should have.
        """
        passages = self.find_passages(query)
        return "\n\n".join(f"[{each.source}] {each.text}" if self.sources else each.text for each in passages)

    def find_passages(self, query: str) -> list[Passage]:
        """Return the best passages. Raises a ToolError for a query that cannot be answered."""
        if len(query) > MAX_QUERY:
            raise QueryTooLong(f"write at most {MAX_QUERY} characters")
        words = find_words(query)
        if not words:
            raise BadArguments("write words to search for")
        if len(words) > MAX_WORDS:
            raise QueryTooLong(f"write at most {MAX_WORDS} different words")
        try:
            hits = self.index.search(words, self.top, self.search_s)
        except TimeoutError as error:
            raise SearchTooSlow(f"{error}; write rarer words") from error
        if not hits:
            raise NothingFound("no passage has a word of the query")
        return [hit.passage for hit in hits]


@lru_cache(maxsize=2)
def _build_index(documents: tuple[Document, ...], passage_chars: int) -> BM25Index:
    return BM25Index(read_passages(documents, passage_chars, KEY))
