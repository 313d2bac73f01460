"""Optima: two agents talk until they agree on an answer, and learn to be right in few and readable words.

Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System, 2024, arXiv:2410.08115.

- dialogues of agents that each know a part of the facts: `dialogue.Dialogue`
- reward of task, tokens and readability under a frozen base model: `reward.combine`, `reward.OptimaReward`
- iSFT learns the best dialogue of each problem: `selection.BestDialogues`
- iDPO learns pairs of messages from a tree of dialogues: `tree.DialogueTree`
- iSFT and iDPO in turn: `conf/rounds/optima.yaml`
"""
