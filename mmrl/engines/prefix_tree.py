"""Prefix tree (trie) of the token sequences that constrained decoding allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class PrefixTree:
    """The sequences of token ids that a completion may be, by their common prefixes. Node 0 is the empty prefix.

    Args:
        sequences: of ids, each with its end token; equal ones count once.

    Raises:
        ValueError: there is no sequence, one is empty, or one is a prefix of another one.
    """

    def __init__(self, sequences: Iterable[Sequence[int]]):
        self.children: list[dict[int, int]] = [{}]
        """The node after each id that may follow, by node; empty at the end of a sequence."""
        self.depth = 0  # ids of the longest sequence
        ends: set[int] = set()
        for ids in sequences:
            node = 0
            for token in ids:
                if token not in self.children[node]:
                    self.children[node][token] = len(self.children)
                    self.children.append({})
                node = self.children[node][token]
            ends.add(node)
            self.depth = max(self.depth, len(ids))
        self._count = len(ends)
        if not ends or any(self.children[node] for node in ends) or 0 in ends:
            raise ValueError(
                "a prefix tree needs sequences of which none is empty or a prefix of another one; end each with the "
                "policy's end token"
            )

    def __len__(self) -> int:
        """Number of sequences."""
        return self._count
