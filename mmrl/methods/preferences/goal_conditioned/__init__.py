"""Goal-conditioned reward model, and answers that it discards and steers while they are sampled.

Learning Goal-Conditioned Representations for Language Reward Models, 2024, arXiv:2407.13887.
"""
