"""Learning without rewards of the world: players and bonuses that send a policy where it has not been."""
