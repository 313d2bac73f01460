"""The benchmark problems as a task of mmrl."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from benchmark import problems
from mmrl.core.types import Episode, Prompt, Task


@dataclass(frozen=True)
class Synthetic(Task):
    """Digits to continue, after a noise image if images are asked for.

    Args:
        folder: with the problems that `benchmark.prepare` wrote.
    """

    folder: str
    split: str = "train"
    name = "synthetic"

    @cached_property
    def _problems(self) -> dict:
        return problems.read(self.folder)

    def __len__(self) -> int:
        return len(self._problems["texts"])

    def __getitem__(self, index: int) -> Prompt:
        text, size = self._problems["texts"][index], self._problems["image_size"]
        key = f"synthetic/{self.split}/{index}"
        if size is None:
            return Prompt(key, ({"role": "user", "content": text},))
        content = [{"type": "image"}, {"type": "text", "text": text}]
        noise_image = problems.noise_image(index, size, self._problems["seed"])
        return Prompt(key, ({"role": "user", "content": content},), (noise_image,))

    def on(self, split: str) -> Synthetic:
        return self

    def score(self, episode: Episode) -> dict[str, float]:
        return {"share": problems.share(episode.output)}
