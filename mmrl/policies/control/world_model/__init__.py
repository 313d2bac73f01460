"""World models in a latent space, and the policy that acts on their states."""
