"""LDC: steering of a language model's states by strengths, one for each dimension of what it writes.

More than 150 lines, since three parts are learned: the steering, its controller, and a reward of each dimension.
"""
