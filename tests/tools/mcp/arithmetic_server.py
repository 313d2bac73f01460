"""An MCP server of the official package, over stdio, or over streamable HTTP at the port that the line names."""

import os
import sys
import time

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("arithmetic")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def divide(a: int, b: int) -> str:
    """Divide two numbers."""
    if b == 0:
        raise ToolError("b is zero")
    return str(a / b)


@server.tool()
def red(size: int) -> Image:
    """Draw a red square."""
    import io

    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.new("RGB", (size, size), (255, 0, 0)).save(file, "PNG")
    return Image(data=file.getvalue(), format="png")


@server.tool()
def end(how: str) -> str:
    """End this process, or never return."""
    if how == "hang":
        time.sleep(10_000)
    os._exit(3)


@server.tool()
def process() -> str:
    """The id of this process."""
    return str(os.getpid())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
