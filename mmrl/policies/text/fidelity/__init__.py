"""Whether a checkpoint computes here what it computes in transformers alone: measured when it is loaded."""

from mmrl.policies.text.fidelity.check import check_fidelity
from mmrl.policies.text.fidelity.measure import Plain

__all__ = ["Plain", "check_fidelity"]
