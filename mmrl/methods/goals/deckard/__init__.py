"""DECKARD: a language model guesses the recipes of a world, and goals at the edge of what is verified correct them.

Do Embodied Agents Dream of Pixelated Sheep? Embodied Decision Making using Language Guided World Modelling, 2023,
arXiv:2301.12050; released code, DeckardAgent/deckard.
"""
