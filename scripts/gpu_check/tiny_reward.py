"""Reward of the tiny runs, which random weights earn unequally, so that they have something to learn from."""


def digit_share(completion: str) -> float:
    """The share of digits among the characters of a completion."""
    return sum(character.isdigit() for character in completion) / max(len(completion), 1)
