"""EnvGen: a writer configures worlds for the skills that an agent lacks, and rewrites them by its success.

EnvGen: Generating and Adapting Environments via LLMs for Training Embodied Agents, 2024, arXiv:2403.12014.
"""
