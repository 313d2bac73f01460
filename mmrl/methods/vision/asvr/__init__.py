"""ASVR: a vision-language model also predicts the semantic codes of the next image token.

Autoregressive Semantic Visual Reconstruction Helps VLMs Understand Better, 2025, arXiv:2506.09040; released code,
AlenjandroWang/ASVR.
"""
