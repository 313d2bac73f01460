"""Episodes of agents that own their loop and talk to the policy over HTTP."""
