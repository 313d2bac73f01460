"""Vision-Zero: self-play of "who is the spy" with pictures, in which clues and votes are trained in turn.

Vision-Zero: Scalable VLM Self-Improvement via Strategic Gamified Self-Play, 2025, arXiv:2509.25541.

- games of citizens and a spy, whose picture is altered: `game.SpyGame`
- rewards of clues (zero-sum) and of votes: `credit.clue_rewards`, `credit.vote_reward`, `credit.GameReward`
- advantages: clues against a baseline of their role, votes within their group: `credit.GameAdvantage`
- clues are trained when votes are easy, votes when they are hard: `phases.PhaseSwitch`
"""
