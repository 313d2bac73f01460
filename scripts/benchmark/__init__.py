"""What the bench scripts share: the same work, measured on both sides alike."""
