"""MkDocs hook: long keys in tables may go on in a new line after a dot, an equals sign, a comma or a slash."""

from __future__ import annotations

import re
from typing import Any

LENGTH = 20
"""Shorter keys stay in one line."""
TABLE = re.compile(r"<table>.*?</table>", flags=re.DOTALL)
CODE = re.compile(r"<code>([^<]*)</code>")
BREAK = re.compile(r"(?<=[\w\]}])([.=,/])(?=[\w\[{])")


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Let the columns of a table become as narrow as the parts of its keys, so that the others keep their room."""
    return TABLE.sub(lambda table: CODE.sub(_breakable, table[0]), html)


def _breakable(code: re.Match[str]) -> str:
    if len(code[1]) < LENGTH or "://" in code[1]:
        return code[0]
    broken = BREAK.sub(r"\1<wbr>", code[1])
    return f"<code>{broken}</code>"
