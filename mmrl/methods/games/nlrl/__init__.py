"""NLRL: policy iteration whose values are written evaluations of moves.

Natural Language Reinforcement Learning, 2024, arXiv:2411.14251; released code, waterhorse1/Natural-language-RL.

- games of the policy against a fixed opponent: `matches.BoardGames`
- language Monte Carlo: evaluations of visited moves: `values.LanguageMonteCarlo`
- improvement: a move among those that the policy samples, by a value model's evaluations: `improvement.MoveImprovement`
- evaluations, a value model, moves and a policy in turn: `conf/rounds/games/nlrl.yaml`
"""
