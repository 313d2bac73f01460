"""Classification with a thought before the answer, which stands in tags."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.scenes.classes import Classification


@dataclass(frozen=True, kw_only=True)
class ThoughtfulClassification(Classification):
    """Classification whose demonstrations are "<think>red; circle</think><answer>red circle</answer>".

    The thought names the colour and the shape of the object. Source: CLS-RL, 2025, the thinking variant,
    arXiv:2503.16188.

    Args: as of Classification; answers stand in tags.
    """

    extract: str | dict[str, str] | None = "tags"

    def demonstrate(self, index: int) -> str:
        answer = self.problem(index).text
        colour, _, shape = answer.partition(" ")
        return f"<think>{colour}; {shape}</think>{self.write_answer(answer)}"
