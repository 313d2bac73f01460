"""`mmrl robot`: a policy plays a robot at a fixed rate, while it computes its next chunk of actions."""
