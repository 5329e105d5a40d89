r"""Server-sent events of a streamed answer, built by hand: only what changes is encoded.

data: {head ... "choices":[{"index":0,  "text":"..."  , ... }] [,"usage":null]}\n\n
      +------------ once a choice ----+  +- each time-+ +------- once ---------+
"""

from tercet.api.answers import Header, encode, logprobs_member, usage
from tercet.api.ask import Ask
from tercet.api.choice import Choice, Delta

DONE = b"data: [DONE]\n\n"


class EventWriter:
    """Writes the events of one answer."""

    def __init__(self, ask: Ask, head: Header, choices: list[Choice]) -> None:
        self._ask = ask
        self._choices = choices
        self._delivery = ask.delivery
        members = encode(head.members())
        self._head = b"data: " + members[:-1] + b',"choices":['
        self._text = b',"delta":{"content":' if ask.chat else b',"text":'
        self._text_end = b"}" if ask.chat else b""
        self._usage = b',"usage":null' if ask.delivery.include_usage else b""
        self._started = [False] * len(choices)
        self._plain = (
            ask.delivery.logprobs is None
            and not ask.delivery.return_token_ids
            and not ask.delivery.continuous_usage
        )
        self._begins = [
            self._head + b'{"index":%d' % choice.index + self._text for choice in choices
        ]
        self._plain_end = (
            self._text_end + b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"
        )

    def write(self, deltas: list[Delta]) -> bytes:
        """Make the events of these deltas."""
        events: list[bytes] = []
        for delta in deltas:
            if not self._started[delta.index]:
                self._begin(delta, events)
            if delta.finish is None and self._plain:
                if delta.text:
                    begin = self._begins[delta.index]
                    events.append(begin + encode(delta.text) + self._plain_end)
            else:
                self._write_rich(delta, events)
        return b"".join(events)

    def end(self) -> bytes:
        """Make the last events: the usage, if it was asked for, and the mark of the end."""
        if not self._delivery.include_usage:
            return DONE
        counts = encode(usage(self._ask, self._choices))
        return self._head + b'],"usage":' + counts + b"}\n\n" + DONE

    def _begin(self, delta: Delta, events: list[bytes]) -> None:
        self._started[delta.index] = True
        ask = self._ask
        ids = b""
        if ask.delivery.return_token_ids:
            ids = b',"prompt_token_ids":' + encode(ask.job.prompts[delta.index // ask.job.n])
        if not ask.chat and not ids:
            return
        inner = b'"delta":{"role":"assistant","content":""}' if ask.chat else b'"text":""'
        inner += b',"logprobs":null,"finish_reason":null'
        events.append(self._event(b'{"index":%d,' % delta.index + inner + ids + b"}"))

    def _write_rich(self, delta: Delta, events: list[bytes]) -> None:
        """Write what is more than text: log-probabilities, token ids, the finish."""
        ask = self._ask
        finish = b"null" if delta.finish is None else encode(delta.finish)
        finish = b',"finish_reason":' + finish + b',"stop_reason":' + encode(delta.stop_reason)
        logprobs = b',"logprobs":' + encode(logprobs_member(ask, delta.entries))
        ids = b""
        if ask.delivery.return_token_ids:
            ids = b',"token_ids":' + encode(delta.tokens)
        begin = b'{"index":%d' % delta.index
        text = self._text + encode(delta.text) + self._text_end
        if not ask.chat or delta.finish is None:
            if delta.text or delta.tokens or delta.finish is not None:
                events.append(self._event(begin + text + logprobs + finish + ids + b"}"))
            return
        if delta.text or delta.entries or (ids and delta.tokens):
            going = b',"finish_reason":null'
            events.append(self._event(begin + text + logprobs + going + ids + b"}"))
        last = b',"delta":{},"logprobs":null'
        events.append(self._event(begin + last + finish + b"}"))

    def _event(self, choice: bytes) -> bytes:
        counts = self._usage
        if self._delivery.continuous_usage:
            counts = b',"usage":' + encode(usage(self._ask, self._choices))
        return self._head + choice + b"]" + counts + b"}\n\n"


def error_event(body: bytes) -> bytes:
    """Make the events that end a stream which can't go on."""
    return b"data: " + body + b"\n\n" + DONE
