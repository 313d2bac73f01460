"""Reward functions of an importable module, which costs a worker process little."""


def brevity(completion: str, answer: object) -> float:
    return 1 / (1 + len(completion)) + (completion.count("1") > 0)
