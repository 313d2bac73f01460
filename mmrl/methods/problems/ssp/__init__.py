"""SSP (Search Self-play): one policy writes questions for given answers by search, and answers them by search.

Search Self-play: Pushing the Frontier of Agent Capability without Supervision, 2025, arXiv:2510.18821.

- the rounds of proposer, check and solvers: `rollout.SearchSelfPlay`
- rules for a question, and its check by retrieval-augmented generation: `questions`
- rewards 1 - a of the proposer, for the share a of solvers that are right, and of solvers: `credit.ProposerReward`
- advantages: the plain reward of the proposer (REINFORCE), GRPO among the solvers: `credit.ProposerAdvantage`
"""
