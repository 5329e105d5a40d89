"""How the house ends a task that its client still wants, and what the client is told."""

from tercet.jobs.job import Failure, FailureCode, Finish, TaskOutput

OUTCOMES: dict[str, tuple[int, str]] = {
    FailureCode.OVERLOADED: (503, "The server is at its limit of waiting requests."),
    FailureCode.NO_EXECUTOR: (503, "No task executor can take the request now."),
    FailureCode.SHUTTING_DOWN: (503, "The server is shutting down."),
    FailureCode.EXECUTOR_LOST: (
        500,
        "The request was given up: the processes that computed it ended again and again.",
    ),
    FailureCode.NO_ROOM: (400, "The request needs more KV memory than the server has."),
    Finish.CANCELLED: (503, "The server ended the request before it was complete."),
}
"""What a task's failure is to its client: a status and a sentence."""


class Ended(Exception):  # noqa: N818
    """The house ended a task that its client still wants: an outcome on its way to the client."""

    def __init__(self, status: int, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.code = code


def ended(output: TaskOutput) -> Ended:
    """Tell a client why its task ended, for a piece whose finish is FAILED or CANCELLED."""
    failure = output.failure
    if failure is None:
        status, sentence = OUTCOMES[Finish.CANCELLED]
        return Ended(status, sentence, code=Finish.CANCELLED)
    return ended_by(failure)


def ended_by(failure: Failure) -> Ended:
    status, sentence = OUTCOMES[failure.code]
    return Ended(status, sentence, code=failure.code)
