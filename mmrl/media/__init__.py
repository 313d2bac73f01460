"""Images and videos that other people wrote."""
