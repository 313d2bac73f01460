"""Metrics of predicted labels."""
