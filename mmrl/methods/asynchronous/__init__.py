"""Learning from samples of older weights, drawn while the learner goes on."""
