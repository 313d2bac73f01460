"""Judge short sums in five formats: what a generative evaluator must learn."""

from tasks.evaluations.task import Evaluations

__all__ = ["Evaluations"]
