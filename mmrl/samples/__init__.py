"""Samples: what a policy saw, wrote and earned, as plain rows for files, terminal and HTML."""
