"""RS-EoT: ground objects first, then judge several statements about one image.

Asking like Socrates: Socrates helps VLMs understand remote sensing images, 2025, arXiv:2511.22396.

- the overlap of a box in the first stage, the share of right judgements in the second: `evidence`
- grounding, then statements: the curriculum `Stages`
"""

from __future__ import annotations


def evidence(iou: float | None = None, share: float | None = None) -> float:
    """Score in [0, 1]: `iou` of a box, or `share` = 1 - mean |y_i - y'_i| of the judgements on N statements.

    Source: Asking like Socrates, 2025, the rewards of both stages, arXiv:2511.22396.
    """
    if (iou is None) == (share is None):
        raise ValueError(
            f"evidence needs one of the scores iou and share, got iou={iou} and share={share}; use scenes_grounding "
            "and scenes_statements"
        )
    return share if iou is None else iou  # type: ignore[return-value]
