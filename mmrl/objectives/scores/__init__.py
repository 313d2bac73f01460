"""Terms of reward models beside the Bradley-Terry loss: centred scores, labels, contrast of features."""
