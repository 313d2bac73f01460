"""Guided decoding: which ids an expression allows behind the ids so far, for sampling and again for scoring."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch, Ragged
from mmrl.core.sampling import build_grammar
from mmrl.ops.choice import mask_logits
from mmrl.policies.text.guided.allowed_ids import AllowedIds

COMPILED = 64
"""Most expressions whose compiled form is held."""


class Grammars:
    """Expressions over the vocabulary of a tokenizer, compiled by llguidance when they are first used.

    A completion ends with the tokenizer's end-of-sequence token, and special tokens spell no text, as in vLLM's
    backend "guidance", which is the same library.

    Args:
        tokenizer: of transformers, a fast one.
        vocabulary: number of logits of the model, at least; further ids are never allowed.
    """

    def __init__(self, tokenizer: Any, vocabulary: int):
        self.tokenizer, self.vocabulary = tokenizer, max(vocabulary, len(tokenizer))

    @property
    def mask_bytes(self) -> int:
        """Bytes of a mask: a bit an id, in words of 32."""
        return -(-self.vocabulary // 32) * 4

    def __getstate__(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer, "vocabulary": self.vocabulary}  # compiled forms cannot be copied

    def start(self, guide: str) -> Matcher:
        """Return a matcher at the beginning of `guide`, the text of `Sampling.guide`.

        Raises:
            ValueError: the tokenizer cannot be read, or the expression does not fit it.
        """
        compiled: dict[str, Any] = self.__dict__.setdefault("_compiled", {})
        if guide not in compiled:
            if len(compiled) >= COMPILED:
                compiled.clear()
            compiled[guide] = self._compile(guide)
        return Matcher(compiled[guide].deep_copy(), self._native.eos_token, guide, self.mask_bytes)

    def _compile(self, guide: str) -> Any:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._native, build_grammar(guide), log_level=0)
        if matcher.is_error():
            raise ValueError(f"sampling: {guide} does not fit the policy's tokenizer: {_first_line(matcher)}")
        return matcher

    @functools.cached_property
    def _native(self) -> Any:
        """The tokenizer as llguidance reads it."""
        from llguidance.hf import from_tokenizer

        try:
            return from_tokenizer(self.tokenizer, self.vocabulary)
        except Exception as error:  # of another library, about a tokenizer that it does not know
            raise ValueError(
                f"sampling.regex and sampling.json_schema need a fast tokenizer with an end-of-sequence token, which "
                f"llguidance can read; this one it cannot: {' '.join(str(error).split())[:300]}"
            ) from error

    # ---------------------------------------------------------------- of the learner

    def columns(self, guide: str, lengths: Sequence[int], width: int) -> dict[str, Tensor | Ragged]:
        """Build the columns `packed_guides` and `guide_sizes` [N, width] of N completions with these lengths."""
        text = torch.frombuffer(bytearray(guide.encode()), dtype=torch.uint8)
        inside = torch.arange(width) < torch.tensor(lengths)[:, None]
        sizes = torch.where(inside, -1, 0)
        sizes[:, 0] = torch.where(inside[:, 0], len(text), 0)
        index = torch.zeros(len(lengths), dtype=torch.long)
        return {"packed_guides": Ragged(text, torch.tensor([len(text)]), index), "guide_sizes": sizes}

    def row(self, guide: str, length: int) -> dict[str, Tensor]:
        """Return one row of `columns`, [*] and [length]."""
        return {name: column[0] for name, column in self.columns(guide, [length], length).items()}

    def allowed_ids(self, batch: Batch) -> AllowedIds:
        """Compute again which ids guides allowed for each choice of the batch, from its columns of guides.

        Raises:
            ValueError: the choices of a row do not follow its expression.
        """
        sizes, actions = batch["guide_sizes"].cpu(), batch["action"].cpu()
        places: dict[bytes, int] = {}  # row of the table by mask; row 0 allows everything
        index = torch.zeros(sizes.shape, dtype=torch.long)
        for row in (sizes > 0).any(1).nonzero().flatten().tolist():
            text, at = bytes(batch["packed_guides"][row].cpu().tolist()), 0
            for begin in (sizes[row] > 0).nonzero().flatten().tolist():
                size = int(sizes[row, begin])
                guide, at = text[at : at + size].decode(), at + size
                following = itertools.takewhile(lambda value: value < 0, sizes[row, begin + 1 :].tolist())
                ids = actions[row, begin : begin + 1 + len(list(following))].tolist()
                masks = self._masks(guide, ids)
                index[row, begin : begin + len(ids)] = torch.tensor(
                    [places.setdefault(mask, len(places) + 1) for mask in masks]
                )
        table = [bytes(self.mask_bytes), *places]
        words = torch.stack([torch.frombuffer(bytearray(mask), dtype=torch.int32) for mask in table])
        return AllowedIds(index.flatten().to(batch["action"].device), words.to(batch["action"].device))

    def _masks(self, guide: str, ids: Sequence[int]) -> list[bytes]:
        """Return the mask before each id of a completion."""
        matcher, masks = self.start(guide), []
        for token in ids:
            masks.append(matcher.mask())
            matcher.consume(token)
        return masks

    def follows(self, guide: str, ids: Sequence[int]) -> bool:
        """Whether a completion of these ids can be drawn under the expression."""
        try:
            self._masks(guide, ids)
        except ValueError:
            return False
        return True


class Matcher:
    """Position of one completion in its expression.

    Args:
        native: matcher of llguidance, which is changed.
        end: id of the end-of-sequence token.
        guide: for errors.
        mask_bytes: of a mask.
    """

    def __init__(self, native: Any, end: int, guide: str, mask_bytes: int):
        self.native, self.end, self.guide, self.mask_bytes = native, end, guide, mask_bytes
        self.ended = False

    def mask(self) -> bytes:
        """Return the bits of the ids that may come next, id 0 first."""
        return self.native.compute_bitmask()[: self.mask_bytes]  # llguidance adds a word where 32 divides the ids

    def consume(self, token: int) -> None:
        """Go on behind a token.

        Raises:
            ValueError: the expression has no such token here, or none of the vocabulary fits.
        """
        if self.ended or not self.native.consume_token(token):
            raise ValueError(
                f"sampling: token {token} does not follow {self.guide}. Either another expression restricted these "
                "choices, or no token of the policy's vocabulary spells what comes next"
            )
        self.ended = token == self.end


class GuidedRows:
    """Matchers of the completions that are sampled in one call.

    Args:
        grammars: of the policy.
        guide: that every completion matches.
        rows: number of completions.
    """

    def __init__(self, grammars: Grammars, guide: str, rows: int):
        self.matchers = [grammars.start(guide) for _ in range(rows)]
        self.anything = b"\xff" * grammars.mask_bytes  # for rows that have ended and are sampled on

    def restrict(self, logits: Tensor, live: Tensor, ids: Tensor) -> Tensor:
        """Return logits [n, V] with -inf at the ids that may not come next.

        Args:
            logits: [n, V] of the next token.
            live: [n] numbers of the rows.
            ids: [n, t] of the rows so far; the last is new, the others were there in the call before.
        """
        rows = [self.matchers[row] for row in live.tolist()]
        for matcher, token in zip(rows, ids[:, -1].tolist() if ids.shape[1] else ()):
            if not matcher.ended:
                matcher.consume(token)
        masks = [self.anything if matcher.ended else matcher.mask() for matcher in rows]
        words = torch.frombuffer(bytearray(b"".join(masks)), dtype=torch.int32).view(len(rows), -1)
        return mask_logits(logits, words.to(logits.device))


def _first_line(matcher: Any) -> str:
    return matcher.get_error().split("<state>")[0].strip()[:300]
