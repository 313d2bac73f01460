"""Sampled rows of FAST tokens as chunks, with the malformed ones counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mmrl.policies.vla.pi0_fast.fast_tokenizer import Decoded, FastTokenizer


def decode_row(fast: FastTokenizer, ids: Sequence[int], horizon: int, dims: int) -> Decoded:
    """Decode choices to a chunk [horizon, dims]; without the end, whose id is that after the tokens, "unfinished"."""
    finished = len(ids) > 0 and ids[-1] == fast.size
    result = fast.decode(ids[:-1] if finished else ids, horizon, dims)
    return result if finished else result._replace(failure="unfinished")


def decode_rows(
    fast: FastTokenizer, rows: Sequence[Sequence[int]], horizon: int, dims: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Decode rows of choices to chunks float32 [R, horizon, dims], and count the malformed ones by metric name."""
    results = [decode_row(fast, row, horizon, dims) for row in rows]
    failures = Counter(decoded.failure for decoded in results if decoded.failure is not None)
    counts = {f"decoding/{name}": float(number) for name, number in failures.items()}
    return np.stack([decoded.chunk for decoded in results]), counts
