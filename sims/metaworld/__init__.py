"""Meta-World under a Python environment of its own: `make metaworld`."""
