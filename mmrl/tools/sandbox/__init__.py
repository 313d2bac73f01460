"""Run untrusted programs in a sandbox."""

from mmrl.tools.sandbox.limits import ExecutorDown, Limits, Ran
from mmrl.tools.sandbox.sandbox import Sandbox
from mmrl.tools.sandbox.tool import ProgramFailed, Python

__all__ = ["ExecutorDown", "Limits", "ProgramFailed", "Python", "Ran", "Sandbox"]
