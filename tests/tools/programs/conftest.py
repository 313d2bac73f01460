"""A chat server that gives prepared answers."""

import contextlib

import pytest

from tests.tools.programs.chat_server import serve_texts


@pytest.fixture
def chat_server():
    """Start a server that answers requests with these texts in turn; returns its address and the bodies it was sent."""
    with contextlib.ExitStack() as servers:
        yield lambda texts: servers.enter_context(serve_texts(texts))
