"""Goal-conditioned reward model, and answers that it discards and steers while they are sampled.

Learning Goal-Conditioned Representations for Language Reward Models, 2024, arXiv:2407.13887.

More than 150 lines, since the model is used in three ways: as a reward, as a filter of answers and in a beam search.
"""
