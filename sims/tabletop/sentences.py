"""Instruction templates: one plain sentence per task, several for training, others held out."""

from __future__ import annotations

from typing import Literal

Wording = Literal["plain", "train", "held_out"]

SENTENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "reach": {
        "plain": ("reach the {colour} cube",),
        "train": ("reach the {colour} cube", "go to the {colour} cube", "move above the {colour} block"),
        "held_out": ("point at the {colour} cube", "bring the hand to the {colour} block"),
    },
    "push": {
        "plain": ("push the {cube} cube to the {disc} disc",),
        "train": (
            "push the {cube} cube to the {disc} disc",
            "move the {cube} block onto the {disc} disc",
            "slide the {cube} cube to the {disc} target",
        ),
        "held_out": ("get the {cube} cube to the {disc} goal", "the {disc} disc is the place for the {cube} block"),
    },
    "pick_place": {
        "plain": ("put the {cube} cube on the {plate} plate",),
        "train": (
            "put the {cube} cube on the {plate} plate",
            "pick up the {cube} cube and place it on the {plate} plate",
            "move the {cube} block onto the {plate} plate",
        ),
        "held_out": ("set the {cube} cube down on the {plate} plate", "the {plate} plate gets the {cube} block"),
    },
    "stack": {
        "plain": ("stack the {cube} cube on the {base} cube",),
        "train": (
            "stack the {cube} cube on the {base} cube",
            "put the {cube} cube on top of the {base} cube",
            "place the {cube} block on the {base} block",
        ),
        "held_out": ("set the {cube} cube on the {base} one", "the {base} block goes under the {cube} block"),
    },
    "drawer": {
        "plain": ("open the {drawer} drawer",),
        "train": ("open the {drawer} drawer", "pull the {drawer} drawer open", "pull the {drawer} handle"),
        "held_out": ("get the {drawer} drawer open", "slide the {drawer} drawer out"),
    },
    "buttons": {
        "plain": ("press the {buttons} button",),
        "train": ("press the {buttons} button", "push the {buttons} button", "touch the {buttons} button"),
        "held_out": ("hit the {buttons} button", "tap on the {buttons} button"),
    },
}
"""By task and wording. A named slot is filled with a colour; {buttons} with several, joined by `THEN`."""

THEN = " button then the "


def sentences(task: str, wording: Wording) -> tuple[str, ...]:
    """Instruction templates of a task in one wording."""
    if wording not in ("plain", "train", "held_out"):
        raise ValueError(f"sim.wording must be plain, train or held_out, got {wording!r}")
    return SENTENCES[task][wording]
