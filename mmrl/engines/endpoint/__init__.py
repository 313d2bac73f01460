"""An OpenAI-compatible endpoint in front of an engine: requests, replies and the HTTP server."""
