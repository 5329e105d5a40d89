"""The three kinds of error, one of each.

*User*: `Invalid`, raised only at the edges (`api`, `cli`, loading of files a user named) and
shown as one sentence. *Operation* failures (peer gone, no room, cancelled) are values in events
and outcomes, never exceptions. *Programmer*: `InvariantBroken`, which stops the process.
"""


class InvariantBroken(Exception):  # noqa: N818  the name says what happened
    """The program contradicts itself; the recorded events reproduce how."""


class Invalid(Exception):  # noqa: N818
    """Something a person gave cannot be served; `sentence` says what and what was expected.

    `code` is stable and machine-readable (`context_length_exceeded`), `parameter` names the
    field, flag or file that is at fault.
    """

    def __init__(
        self, sentence: str, *, code: str = "invalid_value", parameter: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.parameter = parameter


def must(condition: object, story: str) -> None:
    """Stop with `InvariantBroken` unless the condition holds; not stripped by `-O`."""
    if not condition:
        raise InvariantBroken(story)
