"""The name under which a simulator's state holds pickled bytes."""

PICKLED = "pickled"
"""A checkpoint with an entry of this name is only read where it is trusted: unpickling can run any code."""
