"""COS(M+O)S: tree search over the continuations of a story by a learned value of steps, and ORPO on siblings.

COS(M+O)S: Curiosity and RL-Enhanced MCTS for Exploring Story Space via LLMs, 2025, arXiv:2501.17104.

- curiosity, an inverted U of the mean surprisal under a base model: `value.index_surprise`
- the value of a story so far from curiosity and coherence, fitted to ratings: `value.StoryValue`
- the search, and the pairs of siblings that ORPO learns: `search.StorySearch`
- searches and ORPO in turn: `conf/rounds/cosmos.yaml`
"""
