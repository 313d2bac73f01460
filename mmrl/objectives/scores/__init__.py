"""Terms of reward models beside the Bradley-Terry loss: centred scores, labels, steps, contrast of features."""
