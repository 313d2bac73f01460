"""Tables of malformed files by kind, and the small builders that make them."""
