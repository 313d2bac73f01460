"""RequestError: why a request to the endpoint is refused, as clients of OpenAI's interface read it."""

from __future__ import annotations

from typing import Any


class RequestError(ValueError):
    """A request that the endpoint cannot answer.

    Args:
        message: what is wrong, and what to do.
        param: the field of the request.
        code: machine-readable reason.
        status: of HTTP. Clients send a request again after 409, 429 and 5xx, so 400 and 404 are for what stays wrong.
    """

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value", status: int = 400):
        super().__init__(message)
        self.param, self.code, self.status = param, code, status

    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
