"""HIL-SERL: off-policy RL on a robot with demonstrations and a human who intervenes.

Luo et al., "Precise and Dexterous Robotic Manipulation via Human-in-the-Loop Reinforcement Learning", 2024,
arXiv:2410.21845, section III, and its released code (rail-berkeley/hil-serl, examples/train_rlpd.py):

- the human's action is played and stored in place of the policy's: `InterventionRollout`
- transitions of the human are stored in both buffers, those of the policy in the online one alone, and demonstrations
  in the human's alone: `HumanReplayBuffer`
- half of every batch is from each (RLPD, Ball et al., 2023, arXiv:2302.02948, section 4.1): `HumanReplayBuffer.sample`
- the demonstrations are recorded before the first update: `HumanReplayData`
"""
