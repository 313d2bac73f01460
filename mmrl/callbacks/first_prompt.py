"""Print one prompt and one completion before the first optimiser step."""

from __future__ import annotations

import os
from typing import Any

import lightning as L
from rich import get_console
from rich.text import Text

from mmrl.callbacks.progress import STAGE
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode
from mmrl.data.collector import Collected
from mmrl.policies.base import Policy
from mmrl.samples.view import count_repeated


class FirstPrompt(L.Callback):
    """Print the first prompt of a run as the model reads it, a completion, the answer found in it, and its scores.

    Nothing is printed for policies that read no tokens, for rows of data that are not sampled, such as pairs, in
    warm-start stages, or when a run is resumed.

    Args:
        max_characters: of the prompt and of the completion; of a longer text the first and the last half are printed.
    """

    def __init__(self, max_characters: int = 2000):
        check_at_least(2, "trainer.callbacks.first_prompt", max_characters=max_characters)
        self.max_characters = max_characters

    def on_rollout_end(self, trainer: Any, collected: Collected, batch: Batch, ctx: Context) -> None:
        """Print; the data module calls this when an iteration is collected."""
        if ctx.rank or ctx.iteration or os.environ.get(STAGE):
            return
        for episode in collected.sampled or collected.episodes:
            context = episode.turns[0].completion.observation.get("input_ids") if episode.turns else None
            reads_tokens = context is not None and len(context)
            if reads_tokens and isinstance(episode.output, str):
                text = format_episode(episode, ctx.policy, self.max_characters)
                get_console().print(Text(text), soft_wrap=True, highlight=False)
                return


def format_episode(episode: Episode, policy: Policy, max_characters: int) -> str:
    """Format the prompt and the first completion with their special tokens, the extracted answer, and the scores."""
    done = episode.turns[0].completion
    context = policy.token_texts(done.observation["input_ids"].tolist())
    completion = policy.token_texts(done.action.tolist()) if policy.chooses_tokens else [str(done.output)]
    unit = "tokens" if policy.chooses_tokens else "choice"
    info, prompt = episode.info, episode.prompt
    answer = repr(info["extracted"]) if info.get("extracted") is not None else "none was found"
    scores = ", ".join(f"{name} {score:g}" for name, score in episode.scores.items())
    lines = [
        f"first prompt ({prompt.place or prompt.key}), {len(context)} tokens:",
        _indent("".join(context), max_characters),
        f"a completion of it, {len(completion)} {unit}, ended by {episode.ended}:",
        _indent("".join(completion), max_characters),
        *([f"extracted answer: {answer}"] if "extracted" in info else []),
        *([f"right answer: {str(prompt.answer)[:200]!r}"] if prompt.answer is not None else []),
        f"scores: {scores or 'none'}; reward {episode.reward:g}",
    ]
    return "\n".join(lines)


def _indent(text: str, max_characters: int) -> str:
    """Indent a text; repeated special tokens, such as those of an image, are counted."""
    text = count_repeated(text)
    if len(text) > max_characters:
        half = max_characters // 2
        text = f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
    safe = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)  # no control sequences
    return "\n".join(f"  | {line}" for line in safe.split("\n"))
