"""LIBERO and LIBERO-PRO under a Python environment of their own: `make libero`."""
