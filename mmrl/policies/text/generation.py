"""`generate` samples completions token by token with a key-value cache; `next_logits` is its step of the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Ragged
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.ops.choice import draw
from mmrl.policies.text.cache import PromptCache, cache_argument
from mmrl.policies.text.guided.grammars import GuidedRows
from mmrl.policies.text.routing.recorded import ExpertRecord

DROP_BELOW = 0.75  # fraction of unfinished rows below which finished rows leave the batch; 10-25 % finished was fastest


@dataclass
class Generated:
    """Sampled tokens; a row is padded after its own length."""

    ids: Tensor  # [N, T]
    logprobs: Tensor  # [N, T] nats, of the distribution sampled from
    lengths: Tensor  # [N]
    stopped: Tensor  # [N] bool: ended by a stop id or string, not by the limit
    support: tuple[Ragged, Tensor] | None  # ids that truncated sampling kept, and their number for each choice
    seconds: dict[str, float]  # "prefill" and "decode"

    def support_columns(self) -> dict[str, Any]:
        """The columns of kept ids, by name; none without truncated sampling."""
        return {} if self.support is None else dict(zip(("packed_support_ids", "support_sizes"), self.support))


def generate(
    step: Callable[..., Tensor],
    inputs: Mapping[str, Any],
    attention: Tensor,  # [N, P] of the left-padded prompts
    positions: Tensor,  # [N, P], or [3, N, P] for models with rotary positions in three dimensions
    owner: Tensor,  # [R] the prompt of each completion
    cache: PromptCache,  # empty
    sampling: Sampling,
    noise: Noise,
    stops: Callable[[Tensor], Tensor],
    common: int = 0,
    guide: GuidedRows | None = None,
    record: ExpertRecord | None = None,
) -> Generated:
    """Sample R completions token by token, until each has stopped or has sampling.max_tokens tokens.

    The model reads every prompt once, and its completions continue from the cache.

    Args:
        step: runs the model on new inputs with a cache and returns the logits [N, V] of the next token.
        stops: which rows [N] bool have ended, given their ids so far [N, t].
        common: number of first tokens that all prompts share and that are read once.
        guide: expressions that the completions match; None for none.
        record: of the experts of the tokens that the steps read; `step` is then its `step`.
    """
    began = time.perf_counter()
    rows, limit, device = len(owner), sampling.max_tokens, attention.device
    completions = _Drawn(rows, limit, device)
    uniform = noise.uniform(limit).to(device)  # random numbers depend on row and position, not on the batch
    live = torch.arange(rows, device=device)  # rows still in the cache, in its order
    first, read = _read_prompts(step, inputs, attention, positions, cache, common)
    if record is not None:
        record.add_prompts(attention, common)
    cache.expand(owner)
    logits, following = first[owner], positions[..., owner, -1:] + 1
    # without padding that is read again no mask is needed, so that the model builds none at every token
    mask = None if read.all() or not cache.reads_mask() else read[owner]
    prefill = 0.0
    for t in range(limit):
        if guide is not None:
            logits = guide.restrict(logits, live, completions.ids[live, :t])
        token, logprob, support = _draw(logits, uniform[live, t], sampling, t)
        completions.add(t, live, token, logprob, support)
        running = completions.running(t, live, stops)
        if t == 0:
            prefill = time.perf_counter() - began  # the accelerator has finished, since `running` was read
        if t + 1 == limit or not running.any():
            break
        if running.float().mean() < DROP_BELOW:
            keep = running.nonzero().flatten()
            cache.batch_select_indices(keep)
            live, token, following = live[keep], token[keep], following[..., keep, :]
            mask = None if mask is None else mask[keep]
        mask = None if mask is None else torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
        new = {"input_ids": token[:, None]}, mask, following, cache
        logits = step(*new) if t else _decode_first(step, *new)
        if record is not None:
            record.add_choice(t, live)
        following = following + 1
    return completions.result({"prefill": prefill, "decode": time.perf_counter() - began - prefill})


def next_logits(
    model: Any, inputs: Mapping[str, Any], mask: Tensor | None, positions: Tensor, cache: PromptCache
) -> Tensor:
    """Compute the logits [N, V] of the next token with a transformers model; the inputs extend its cache."""
    cache_kwargs = {cache_argument(model): cache}
    out = model(**inputs, **cache_kwargs, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
    return out.logits[:, -1]


def _draw(logits: Tensor, uniform: Tensor, sampling: Sampling, position: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sample the tokens of one position of the completions from logits [n, V], as `draw` does."""
    return draw(
        logits,
        uniform,
        temperature=sampling.temperature_at(position),
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        greedy=sampling.decode == "argmax",
    )


def _read_prompts(
    step: Callable[..., Tensor],
    inputs: Mapping[str, Any],
    attention: Tensor,
    positions: Tensor,
    cache: PromptCache,
    common: int,
) -> tuple[Tensor, Tensor]:
    """Read the prompts into the cache: logits [N, V] of their first choices, and the mask [N, P] of the cache.

    Common tokens are read once. Padding stands between them and the rest of a prompt.
    """
    if not common:
        return step(inputs, attention, positions, cache), attention
    ids = inputs["input_ids"]
    rows, width = ids.shape
    lengths = attention.sum(1, keepdim=True)
    start = width - int(lengths[0])
    first = slice(start, start + common)
    step({"input_ids": ids[:1, first]}, None, positions[:1, first], cache)
    cache.batch_repeat_interleave(rows)
    rest = torch.arange(common, width, device=ids.device) >= width - lengths + common
    mask = torch.cat([attention.new_ones(rows, common), rest.to(attention.dtype)], 1)
    return step({"input_ids": ids[:, common:]}, mask, positions[:, common:], cache), mask


def _decode_first(step: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Compute the first logits; stop sharing prompts if the model's own attention ignores them or fails."""
    cache: PromptCache = arguments[-1]
    try:
        logits = step(*arguments)
        if not cache.ignores_prefix():
            return logits
    except (RuntimeError, ValueError, TypeError, IndexError):
        if not cache.ignores_prefix():
            raise
    cache.unshare()
    return step(*arguments)


class _Drawn:
    """Rows sampled so far. Finished rows may be sampled further; the result is cut."""

    def __init__(self, rows: int, limit: int, device: torch.device):
        self.ids = torch.zeros(rows, limit, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, limit, device=device)
        self.lengths = torch.full((rows,), limit, device=device)
        self.stopped = torch.zeros(rows, dtype=torch.bool, device=device)
        self.kept: list[tuple[int, Tensor, Tensor, Tensor]] = []  # choice, rows, their numbers of ids, ids end to end

    def add(self, t: int, live: Tensor, token: Tensor, logprob: Tensor, support: Tensor | None) -> None:
        self.ids[live, t], self.logprobs[live, t] = token, logprob
        if support is not None:
            inside = support >= 0
            self.kept.append((t, live, inside.sum(1), support[inside].int()))

    def running(self, t: int, live: Tensor, stops: Callable[[Tensor], Tensor]) -> Tensor:
        """Return which of the present rows continue after their choice t."""
        ended = stops(self.ids[live, : t + 1]) & ~self.stopped[live]
        self.lengths[live[ended]], self.stopped[live[ended]] = t + 1, True
        return ~self.stopped[live]

    def result(self, seconds: dict[str, float]) -> Generated:
        longest = int(self.lengths.max())
        inside = torch.arange(longest, device=self.ids.device) < self.lengths[:, None]
        return Generated(
            ids=torch.where(inside, self.ids[:, :longest], 0),
            logprobs=torch.where(inside, self.logprobs[:, :longest], 0),
            lengths=self.lengths,
            stopped=self.stopped,
            support=self._support(inside) if self.kept else None,
            seconds=seconds,
        )

    def _support(self, inside: Tensor) -> tuple[Ragged, Tensor]:
        """Order the kept ids by row, for the choices [N, T] inside a row's length."""
        sizes = torch.zeros_like(self.ids)
        for t, live, counts, _ in self.kept:
            sizes[live, t] = counts
        sizes = torch.where(inside, sizes[:, : inside.shape[1]], 0)
        # the ids are ordered by choice, then by row; `order` sorts them by row, then by choice
        limit = self.ids.shape[1]
        place = torch.cat([(live * limit + t).repeat_interleave(counts) for t, live, counts, _ in self.kept])
        ids = torch.cat([ids for *_, ids in self.kept])
        order = place.argsort(stable=True)
        within = place[order] % limit < self.lengths[place[order] // limit]
        return Ragged(ids[order[within]], sizes.sum(1).cpu()), sizes
