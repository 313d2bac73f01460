"""Code that a configuration names: whose it is, and which classes a slot takes."""
