"""Metrics of an iteration's episodes."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.types import Episode


def episode_metrics(episodes: Sequence[Episode], kept: int, rows: int) -> dict[str, float]:
    """Means over the episodes of all ranks. Failed episodes are counted, and are in no mean.

    What a rollout counted in `info["counts"]`, by name, is summed.

    Args:
        episodes: light episodes of all ranks, before any was dropped.
        kept: episodes that are trained on, over all ranks.
        rows: rows that are trained on, over all ranks.
    """
    finished = [episode for episode in episodes if episode.ended != "error"]
    out = {"errors": float(len(episodes) - len(finished)), "episodes": float(kept), "rows": float(rows)}
    if finished:
        out["reward"] = _mean([e.reward for e in finished])
        out["tokens_mean"] = _mean([e.info["tokens"] for e in finished])
        out["truncated_fraction"] = _mean([float(e.ended == "length") for e in finished])
        for name in sorted({name for e in finished for name in e.scores}):
            out[f"score/{name}"] = _mean([e.scores[name] for e in finished if name in e.scores])
    counts = [episode.info.get("counts", {}) for episode in episodes]  # of failed ones too: why they failed is in them
    for name in sorted({name for one in counts for name in one}):
        out[name] = float(sum(one.get(name, 0) for one in counts))
    return {f"rollout/{name}": value for name, value in out.items()}


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))
