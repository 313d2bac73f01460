"""Python API: `fit`, `evaluate` and `load_policy`, which run the code of the commands."""
