"""CLS-RL: rewards of image classification, with a thought before the class and without.

CLS-RL: Image Classification with Rule-Based Reinforcement Learning, 2025, arXiv:2503.16188.

- the whole completion is the class (No-Thinking-RL): `direct_answer`
- the class in its tags, and the format: `thought_and_answer`
"""

from __future__ import annotations

from mmrl.rewards.extract import Tags
from mmrl.rewards.shaping import tag_format


def direct_answer(completion: str, answer: str) -> float:
    """1 if the whole completion is the name of the class, letter by letter, else 0.

    There is no reward for a format: whatever stands beside the name costs it, so that completions stay short. Source:
    CLS-RL, 2025, No-Thinking-RL, arXiv:2503.16188.
    """
    return float(completion == answer)


def thought_and_answer(completion: str, answer: str, prompt_end: str = "") -> dict[str, float]:
    """Scores `accuracy`, 1 for the class in <answer> tags whatever its case, and `tags`, 1 for a thought and an answer.

    Source: CLS-RL, 2025, accuracy and format reward, arXiv:2503.16188.
    """
    found = Tags()(completion)
    right = found is not None and found.lower() == answer.lower()
    return {"accuracy": float(right), "tags": tag_format(completion, prompt_end=prompt_end)}
