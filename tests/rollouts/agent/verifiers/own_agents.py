"""Agents as a user's file has them."""

import os
import sys

from mmrl.rollouts.agent.verifiers.agent import VerifiersAgent

PYTHON = os.environ.get("MMRL_VERIFIERS_PYTHON")
"""Of an environment with verifiers 0.4 and uv; None without one."""

lengths = VerifiersAgent("lengths", sys.executable)
first_letters = VerifiersAgent("first_letters", PYTHON or sys.executable)
