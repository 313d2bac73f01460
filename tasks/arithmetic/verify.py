"""Verify the answer to an arithmetic question."""

from __future__ import annotations

import re

from tasks.checks import final_line

# one way to write each number: ASCII digits, no leading zero, no minus zero
INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def verify(text: str, answer: int) -> dict[str, float]:
    """format: 1 when the final line is one integer and nothing else; exact: 1 when it is also the right one."""
    final = final_line(text)
    well_formed = INTEGER.fullmatch(final) is not None
    # every integer has one accepted spelling, so equal text is equal value, however long a policy rambles in digits
    return {"exact": float(well_formed and final == str(answer)), "format": float(well_formed)}
