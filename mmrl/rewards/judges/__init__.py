"""Language models as judges: what they are asked (forms), who answers (judges), and the reward of the verdicts."""
