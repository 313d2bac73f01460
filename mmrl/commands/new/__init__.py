"""`mmrl new`: write a part of one's own, which works, with its test."""
