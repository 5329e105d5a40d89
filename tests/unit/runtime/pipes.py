"""Streams in memory: what one end writes, the other receives when the test says so."""

import asyncio


class Pipe(asyncio.Transport):
    """One direction's writing end; `deliver` hands over what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.unsent = 0
        self.closed = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    @property
    def over(self) -> bool:
        return self.closed or self.aborted


async def turn(num: int = 3) -> None:
    """Let what was queued for the end of this turn happen."""
    for _ in range(num):
        await asyncio.sleep(0)


async def exchange(one: asyncio.Protocol, pipe: Pipe, other: asyncio.Protocol, back: Pipe) -> None:
    """Hand over everything that both ends write, until neither writes more."""
    await turn()
    while pipe.written or back.written:
        for source, receiver in ((pipe, other), (back, one)):
            data, source.written = b"".join(source.written), []
            if data:
                receiver.data_received(data)
        await turn()
