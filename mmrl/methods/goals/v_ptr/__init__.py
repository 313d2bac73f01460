"""V-PTR: pre-train the picture encoder of offline RL by values of intents in videos without actions.

Robotic Offline RL from Internet Videos via Value-Function Pre-Training, 2023, arXiv:2309.13041.
"""
