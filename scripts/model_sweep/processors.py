"""Tiny processors of vision-language types."""

from __future__ import annotations

from typing import Any


def build_processor(kind: str) -> tuple[Any, Any]:
    """Build the tiny configuration and the processor of a vision-language type."""
    raise NotImplementedError(kind)
