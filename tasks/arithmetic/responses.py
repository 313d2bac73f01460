"""Responses to problems beside the right result, with a label: what a verifier of free answers is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.arithmetic.task import Arithmetic

FORMS = ("{}", "{}", "{}.", "={}", "it is {}", "so {}")
"""Forms of a response; the plain one is as frequent as two others."""


def ask_verifier(question: str, reference: str) -> tuple[dict[str, str]]:
    """Messages that a verifier reads before a response: the question, the right result and a mark, as 3+8+1=12?"""
    return ({"role": "user", "content": f"{question}{reference}?"},)


@dataclass(frozen=True)
class LabelledResponses(Arithmetic):
    """Problems of `Arithmetic`, each with the right result and a response, which half of the time is another number.

    `Prompt.info` has the response as `chosen`, and `labels`: `right` is 1 or 0.

    Args:
        flipped_fraction: share of the training labels that are wrong; those of held-out problems are right.
    """

    digits: Sequence[int] = (1, 1, 1)
    flipped_fraction: float = 0.1

    name = "labelled_responses"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 0.5)", flipped_fraction=self.flipped_fraction)

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        rng = derive_rng(self.name, self.seed, self.split, index)
        right = bool(rng.random() < 0.5)
        number = prompt.answer + (0 if right else int(rng.integers(1, 10)) * (1 if rng.random() < 0.5 else -1))
        response = FORMS[int(rng.integers(len(FORMS)))].format(number)
        flipped = self.split == "train" and rng.random() < self.flipped_fraction
        messages = ask_verifier(prompt.messages[0]["content"], str(prompt.answer))
        info = {**prompt.info, "chosen": response, "labels": {"right": float(right != flipped)}}
        return replace(prompt, messages=messages, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        """Scores of a verifier's prediction, as the rollout `ScoredLabels` gives them."""
        return dict(episode.info.get("scores", {}))
