"""Stands in for the package verifiers, which pins other packages than mmrl."""
