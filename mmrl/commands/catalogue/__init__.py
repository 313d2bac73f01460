"""`mmrl list`: config groups, parts and recipes, read from files without importing them."""
