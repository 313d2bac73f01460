"""Common parts of the benchmark scripts: the same work measured on both sides."""
