"""The prompt of pi0.5 and pi0-FAST: instruction and state as text."""

from __future__ import annotations

import numpy as np

BINS = 256


def state_bins(state: np.ndarray) -> list[int]:
    """Return the number of the bin of each entry: 256 of equal width from -1 to 1; -1 below them, 255 above.

    Source: openpi's PaligemmaTokenizer; LeRobot 0.6, Pi05PrepareStateTokenizerProcessorStep.
    """
    edges = np.linspace(-1, 1, BINS + 1)[:-1]
    return (np.digitize(state, edges) - 1).tolist()


def write_prompt(instruction: str, state: np.ndarray, end: str) -> str:
    """Return the prompt, for example "Task: push the cube, State: 12 200 127;" and a line break.

    Args:
        instruction: what to do; underscores and line breaks become spaces.
        state: normalised proprioception [P].
        end: text after it, such as "Action: ".
    """
    task = instruction.strip().replace("_", " ").replace("\n", " ")
    return f"Task: {task}, State: {' '.join(map(str, state_bins(state)))};\n{end}"
