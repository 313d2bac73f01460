"""Agent-RLVR: failed attempts of an agent are made again with guidance, and DPO learns them without it.

Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards, 2025, arXiv:2506.11425.

- problems without a passing attempt are tried again, guided: `guidance.RetryWithGuidance`
- the guidance leaves the context before training: `guidance.remove_guidance`
- pairs of an attempt that passes the tests and one that does not: `pairs.TestedPairs`
- a reward model of the same attempts, which chooses one of k at test time: `reward_model.AttemptPairs`,
  `reward_model.TranscriptScore`
"""
