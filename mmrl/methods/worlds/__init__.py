"""Papers on agents in text worlds with admissible actions."""
