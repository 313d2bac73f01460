"""Teachers that choose the levels of an environment."""
