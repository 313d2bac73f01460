"""LSPO: free speech of a game of hidden roles is clustered, the game over clusters is solved, and DPO follows it.

Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization, 2025,
arXiv:2502.04686.

- the game of speeches and votes: `game.HiddenRoleGame`
- clusters of speeches, and the game over them: `latent.SpeechClusters`, `latent.LatentGame`
- its solution: `cfr.RegretMinimiser`
- preference pairs by the solution: `pairs.LatentPairs`
- rounds with more clusters: `conf/rounds/games/lspo.yaml`
"""
