"""Environments of the package verifiers as an agent: they run in an environment of their own."""
