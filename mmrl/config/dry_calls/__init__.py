"""Call rewards, judges and tasks of others once, before a model is built."""
