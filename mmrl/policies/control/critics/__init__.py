"""Actor-critics whose critic reads something else than the actor."""
