"""Facts on their way to the front that shows metrics: gathered, sent together, bounded."""

from tercet.messages.effects import Fact
from tercet.runtime.codec import Facts
from tercet.runtime.peers import Peers

FACTS_MAX = 4096
"""Facts that wait to be sent; more are dropped (I6)."""


class OutgoingFacts:
    """Those of one process."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []

    def note(self, fact: Fact) -> None:
        if len(self._facts) < FACTS_MAX:
            self._facts.append(fact)

    def send(self, peers: Peers, *, to: str) -> None:
        """Give them to every connected peer whose address begins so; who is away misses them."""
        if self._facts:
            peers.send_facts(Facts(facts=tuple(self._facts)), to=to)
            self._facts.clear()
