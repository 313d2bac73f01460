"""Prompts, images and reward of both sides. Needs numpy alone, since a peer may not have mmrl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE = "problems.json"
HIGH = frozenset("56789STUVWXYZstuvwxyz")


def questions(count: int, tokens: int, count_tokens: Callable[[str], int], seed: int) -> list[str]:
    """Random digits of exactly `tokens` tokens, chat template included.

    Args:
        count_tokens: how many tokens the model reads for one question.
    """
    rng = np.random.default_rng([seed, 1])
    length = tokens
    for _ in range(50):
        count_now = count_tokens("7" * length)
        if count_now == tokens or (count_now > tokens and length == 1):
            break
        length = max(1, length + tokens - count_now)
    out = ["".join(map(str, rng.integers(0, 10, length))) for _ in range(count)]
    wrong = sorted({n for text in out if (n := count_tokens(text)) != tokens})
    if wrong:
        raise SystemExit(
            f"--prompt-tokens {tokens} cannot be met: this checkpoint's template and tokenizer give {wrong} tokens; "
            "take one of these"
        )
    return out


def noise_image(index: int, size: int, seed: int) -> np.ndarray:
    """Noise image, [size, size, 3] uint8; distinct per problem."""
    return np.random.default_rng([seed, 2, index]).integers(0, 256, (size, size, 3), dtype=np.uint8)


def share(text: str) -> float:
    """The reward: fraction of high digits and late letters in the text; it differs within any group."""
    return sum(character in HIGH for character in text) / max(1, len(text))


def write(folder: Path, problems: dict[str, Any]) -> None:
    (folder / FILE).write_text(json.dumps(problems))


def read(folder: str | Path) -> dict[str, Any]:
    """{"texts": [...], "image_size": int or None, "seed": int}"""
    return json.loads((Path(folder) / FILE).read_text())
