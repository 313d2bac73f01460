"""CLS-RL: rewards of image classification without and with a thought.

CLS-RL: Image Classification with Rule-Based Reinforcement Learning, 2025, arXiv:2503.16188.

- the whole completion is the class (No-Thinking-RL): `direct_answer`
- the class between tags after a thought, and the form (CLS-RL): `thought_answer`
"""

from __future__ import annotations

import re

FORM = re.compile(r"<think>.*?</think>\s*<answer>(.*?)</answer>", re.DOTALL)


def direct_answer(completion: str, answer: str) -> float:
    """1 if the whole completion is the name of the class, letter by letter, else 0.

    There is no reward for a format: whatever stands beside the name costs it, so that completions stay short. Source:
    CLS-RL, 2025, No-Thinking-RL, arXiv:2503.16188.
    """
    return float(completion == answer)


def thought_answer(completion: str, answer: str) -> float:
    """1 if the text between the answer's tags is the name of the class, and 1 if the completion is a thought and it.

    Capitals and the space around the name do not matter; where there are several answers the first one counts. Source:
    CLS-RL, 2025, accuracy and format rewards, arXiv:2503.16188; released code, minglllli/CLS-RL.
    """
    match = re.search(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    right = match is not None and match[1].strip().lower() == answer.strip().lower()
    return float(right) + float(FORM.fullmatch(completion) is not None)
