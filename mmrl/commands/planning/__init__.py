"""Memory and time of a run before it starts: exact parameter counts, traced activations, peaks by phase."""
