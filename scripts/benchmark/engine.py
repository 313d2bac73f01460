"""Benchmark rollouts of one engine without learning: `python -m benchmark.engine SETTINGS RESULT`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmark import process
from benchmark.ours import words
from benchmark.settings import Settings
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Context
from mmrl.distributed import parallel

PHASES = ("prefill", "decode", "sync")


def main(settings: Settings, result: str) -> None:
    with tempfile.TemporaryDirectory() as run_dir:
        cli = CLI(to_lightning(compose(words(settings, run_dir, None))))
        try:
            process.report(result, _measure(cli, settings))
        finally:
            cli.datamodule.engine.close()


def _measure(cli: CLI, settings: Settings) -> dict[str, Any]:
    """One warm-up rollout and `steps` measured ones, each with new weights and prompts."""
    data, policy = cli.datamodule, cli.model.policy.to(settings.device)
    rounds, lengths, prompt = [], [], 0
    for number in range(settings.steps + 1):
        ctx = Context(
            task=data.task,
            engine=data.engine,
            policy=policy,
            sampling=data.sampling,
            seed=data.seed,
            iteration=number,
            group_size=data.group_size,
            device=policy.device,
        )
        first = number * settings.prompts
        prompts = [(slot, data.task[first + slot]) for slot in range(settings.prompts)]
        data.engine.reset_report()
        started = time.perf_counter()
        data.engine.sync(policy, number)
        synced = time.perf_counter()
        with parallel.precision(cli.trainer):
            episodes = data.rollout.collect(prompts, ctx)
        if settings.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - synced
        tokens = sum(episode.tokens for episode in episodes)
        row = {"sync": synced - started, "seconds": seconds, "tokens_per_second": tokens / seconds}
        spent = data.engine.report()
        rounds.append(row | {name: spent[f"time/{name}"] for name in PHASES if f"time/{name}" in spent})
        lengths.append(tokens / len(episodes))
        prompt = int(episodes[0].turns[0].completion.observation["input_ids"].shape[-1])
    counted = rounds[1:]

    def middle(name: str) -> float | None:
        values = [row[name] for row in counted if name in row]
        return median(values) if values else None

    return {
        "tokens_per_second": middle("tokens_per_second"),
        "seconds": middle("seconds"),
        **{f"{name}_seconds": middle(name) for name in PHASES},  # null: this engine cannot tell
        "peak_rss_gib": process.peak_rss_gib(),
        "mean_length": sum(lengths[1:]) / len(lengths[1:]),
        "prompt_tokens": prompt,
        "round_seconds": [round(row["seconds"], 4) for row in rounds],
        **_memory(policy),
    }


def _memory(policy: Any) -> dict[str, int]:
    """Bytes that a decode step reads: the language model's weights once, and keys and values per token."""
    config = policy.model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = policy.model.dtype.itemsize
    weights = sum(p.numel() * p.element_size() for n, p in policy.model.named_parameters() if "vision" not in n)
    table = policy.model.get_input_embeddings().weight
    if not config.tie_word_embeddings:  # an untied table of inputs is looked up, not read through
        weights -= table.numel() * table.element_size()
    return {
        "weight_bytes": weights,
        "cache_bytes_per_token": 2 * config.num_hidden_layers * config.num_key_value_heads * head * width,
    }


if __name__ == "__main__":
    Path(sys.argv[2]).unlink(missing_ok=True)
    main(Settings.read(sys.argv[1]), sys.argv[2])
