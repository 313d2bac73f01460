"""Episodes of one prompt with texts as answers."""

from collections.abc import Sequence

from mmrl.config.dry_calls.data import build_episode
from mmrl.core.types import Episode, Prompt


def group_of(answers: Sequence[str], answer: str | None = "4", **info: object) -> list[Episode]:
    """A group of episodes with these answers."""
    prompt = Prompt("sums/train/0", ({"role": "user", "content": "What is 2 + 2?"},), answer=answer, info=dict(info))
    return [build_episode(prompt, text, 0, n) for n, text in enumerate(answers)]
