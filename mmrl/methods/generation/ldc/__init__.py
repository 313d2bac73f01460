"""LDC: steering of a language model's states by strengths, one for each dimension of what it writes."""
