"""Whether a checkpoint computes here what it computes in transformers alone: measured when it is loaded."""

from mmrl.policies.text.fidelity.check import check_fidelity

__all__ = ["check_fidelity"]
