"""CLS-RL: exact-match reward of image classification for completions without reasoning (No-Thinking-RL).

CLS-RL: Image Classification with Rule-Based Reinforcement Learning, 2025, arXiv:2503.16188.

- the whole completion is the class (No-Thinking-RL): `direct_answer`
"""

from __future__ import annotations


def direct_answer(completion: str, answer: str) -> float:
    """1 if the whole completion is the name of the class, letter by letter, else 0.

    There is no reward for a format: whatever stands beside the name costs it, so that completions stay short. Source:
    CLS-RL, 2025, No-Thinking-RL, arXiv:2503.16188.
    """
    return float(completion == answer)
