"""What a streamed completion said, and when: server-sent events, fed as bytes arrive."""

import msgspec

_decode = msgspec.json.Decoder(type=dict).decode


class EventStream:
    """Reads one answer. Times are what `feed` was told."""

    def __init__(self) -> None:
        self.arrivals: list[int] = []
        """When each chunk with text or a token came; several that come together are several."""
        self.usage: dict[str, int] = {}
        self._rest = b""
        self._finished = False
        self._done = False
        self._failure: str | None = None

    def feed(self, data: bytes, now: int) -> None:
        """Take the next bytes of the body; malformed events make `error` say so."""
        data = self._rest + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *events, self._rest = data.split(b"\n\n")
        for event in events:
            if event.startswith(b"data:") and not self._done and self._failure is None:
                self._take(event[5:].strip(), now)

    @property
    def error(self) -> str | None:
        """Why the stream did not end as it should; None if it did."""
        if self._failure is not None:
            return self._failure
        if not self._done:
            return "stream was cut"
        return None if self._finished else "no finish reason"

    def _take(self, payload: bytes, now: int) -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            chunk = _decode(payload)
            error = chunk.get("error")
            if error is not None:
                self._failure = f"error in stream: {described(error)}"
                return
            self.usage.update(chunk.get("usage") or {})
            for choice in chunk.get("choices", ()):
                self._take_choice(choice, now)
        except (msgspec.MsgspecError, AttributeError, TypeError):
            self._failure = "an event that is no chunk"

    def _take_choice(self, choice: dict[str, object], now: int) -> None:
        finishes = choice.get("finish_reason") is not None
        self._finished = self._finished or finishes
        # Tokens may have no text; then the end is the only sign of them.
        if choice.get("text") or choice.get("token_ids") or (finishes and not self.arrivals):
            self.arrivals.append(now)


def described(error: object) -> str:
    """Name an error object of the API by its code and, shortened, its sentence."""
    if not isinstance(error, dict):
        return str(error)[:120]
    parts = [str(error[key]) for key in ("code", "message") if error.get(key)]
    return ": ".join(parts)[:160] or "unnamed"


def refusal(status: int, body: bytes) -> str:
    """Name an answer that is no stream."""
    try:
        error = _decode(body).get("error")
    except msgspec.MsgspecError:
        error = None
    return f"HTTP {status}" if error is None else f"HTTP {status} {described(error)}"
