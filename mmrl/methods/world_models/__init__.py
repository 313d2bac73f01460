"""World models: what an agent learns of the dynamics of its observations."""
