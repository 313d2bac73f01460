"""Full-text search over a folder of documents as a tool."""
