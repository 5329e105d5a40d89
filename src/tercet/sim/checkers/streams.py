"""I1 and order: every accepted job ends exactly once, and no token is lost, doubled or changed."""

from collections.abc import Callable

from tercet.base.errors import must
from tercet.base.ids import TaskId, show_task
from tercet.jobs.job import Finish, TaskOutput
from tercet.sim.clients import Clients, Request, Stream

Expected = Callable[[Request, TaskId, int], int]
"""The token that the task must have at an index of its output, whatever happened before."""


class StreamChecker:
    """Looks at every piece of every stream before the client takes it."""

    def __init__(self, clients: Clients, expected: Expected) -> None:
        self._clients = clients
        self._expected = expected
        clients.on_output.append(self.look)

    def look(self, request: Request, output: TaskOutput, stream: Stream) -> None:
        name = show_task(output.task)
        must(stream.finish is None, f"task {name} goes on after its end ({stream.finish})")
        at = len(stream.tokens)
        for offset, token in enumerate(output.tokens):
            wanted = self._expected(request, output.task, at + offset)
            must(
                token == wanted,
                f"task {name}: token {at + offset} is {token}, undisturbed it is {wanted}",
            )
        count = at + len(output.tokens)
        limit = request.job.sampling.max_tokens
        must(count <= limit, f"task {name} got {count} tokens, asked for at most {limit}")
        if output.finish is Finish.LENGTH:
            must(count == limit, f"task {name} ended by length with {count} of {limit} tokens")
        if output.finish is Finish.CANCELLED:
            must(request.cancelled, f"task {name} was cancelled, but its client still waits")

    def at_quiet(self) -> None:
        """Raise unless every stream has ended whose client still stands."""
        late = [r for r in self._clients.open() if not r.cut]
        if late:
            tasks = [t for t, stream in late[0].streams.items() if stream.finish is None]
            must(
                condition=False,
                story=f"{len(late)} jobs never ended; the first waits for {show_task(tasks[0])}",
            )
        for request in self._clients.requests.values():
            poisoned = request.job.id in self._clients.poison
            if not poisoned or request.cut or request.cancelled:
                continue
            ends = [s.finish for s in request.streams.values()]
            must(
                any(end is Finish.FAILED for end in ends),
                f"poison job {request.job.id} ended well: {ends}",
            )
