"""Negotiation over a few items with a partner of fixed rules."""

from tasks.negotiation.task import Negotiation

__all__ = ["Negotiation"]
