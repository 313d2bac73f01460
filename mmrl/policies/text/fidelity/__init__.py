"""Whether a checkpoint computes here what it computes in transformers alone: measured when it is loaded."""

from mmrl.policies.text.fidelity.check import check_fidelity
from mmrl.policies.text.fidelity.division import check_division
from mmrl.policies.text.fidelity.measure import Plain
from mmrl.policies.text.fidelity.rows import check_rows

__all__ = ["Plain", "check_division", "check_fidelity", "check_rows"]
