"""Programs as rewards: written by a person or a model, run in the sandbox, read a simulator's named state."""
