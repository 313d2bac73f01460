"""Python functions to write or repair, judged by tests in the sandbox; rows of HumanEval."""

from tasks.code.humaneval import HumanEval
from tasks.code.task import Code

__all__ = ["Code", "HumanEval"]
