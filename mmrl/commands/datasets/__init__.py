"""`mmrl data`: record, inspect and convert recorded episodes."""
