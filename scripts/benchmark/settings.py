"""Settings of a measurement, passed from the script to the measured process as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Settings of one measurement.

    Args:
        folder: of the prepared checkpoint, with its problems beside it.
        prompts: per step.
        group: completions per prompt (G).
        prompt_tokens: text tokens of a prompt, images not counted (P).
        new_tokens: most tokens of a completion.
        steps: that count; one more warms up.
        images: one image before the text.
        mean_length: of the completions, whose lengths are then geometric; None makes all of them new_tokens long.
        engine: of mmrl.
        dtype: "float32" or "bfloat16", of the arithmetic; weights are fp32, as bf16 ones would not move at this `lr`.
        device: "cpu" or "cuda".
        lr: of AdamW on both sides; small, so that the lengths stay what they are.
        micro_rows: rows of a forward and backward pass; None for all rows of the step at once.
        lora: rank of low-rank adapters on all linear layers; None trains all weights.
        words: further words of `mmrl fit`.
        seed: of problems, sampling and stop ids.
    """

    folder: str
    prompts: int = 16
    group: int = 8
    prompt_tokens: int = 6
    new_tokens: int = 64
    steps: int = 6
    images: bool = False
    mean_length: float | None = None
    engine: str = "local"
    dtype: str = "float32"
    device: str = "cpu"
    lr: float = 1e-6
    micro_rows: int | None = None
    lora: int | None = None
    words: list[str] = field(default_factory=list)
    seed: int = 0

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def accumulate(self) -> int:
        """Number of micro-batches of a step."""
        return 1 if self.micro_rows is None else -(-self.rows // self.micro_rows)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        return cls(**json.loads(Path(path).read_text()))
