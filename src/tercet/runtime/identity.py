"""Who speaks, and the proof of it: a challenge and a keyed hash in both directions.

    listener                       dialer
       ------- challenge (32) ------>
       <------ Hello(nonce, proof) --   proof over (dial, sender, epoch, nonce, challenge)
       ------- Hello(nonce, proof) ->   the same with listen, and the dialer's nonce

A listener proves itself only to a dialer that did, and no proof can be used twice or sent back,
because both sides' fresh numbers and the direction are in it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Literal

from tercet.base.ids import Address, Epoch
from tercet.messages.wire import PROTOCOL, Hello

NONCE_BYTES = 32
Side = Literal["dial", "listen"]


@dataclass(frozen=True)
class Identity:
    """One machine's name, its incarnation and the secret that all processes of a cluster share."""

    address: Address
    epoch: Epoch
    secret: bytes = field(repr=False)

    def hello(self, side: Side, *, challenge: bytes, dialer_nonce: bytes) -> Hello:
        """Give this side's hello; a dialer's own nonce is `dialer_nonce`."""
        proof = _proof(self.secret, (side, self.address, self.epoch), dialer_nonce + challenge)
        return Hello(
            protocol=PROTOCOL,
            sender=self.address,
            epoch=self.epoch,
            nonce=dialer_nonce,
            proof=proof,
        )

    def believes(self, hello: Hello, side: Side, *, challenge: bytes, dialer_nonce: bytes) -> bool:
        """Tell whether the peer on that side speaks our protocol and knows the secret."""
        expected = _proof(self.secret, (side, hello.sender, hello.epoch), dialer_nonce + challenge)
        return hello.protocol == PROTOCOL and hmac.compare_digest(expected, hello.proof)


def nonce() -> bytes:
    """Give fresh bytes that nobody can guess."""
    return secrets.token_bytes(NONCE_BYTES)


def _proof(secret: bytes, speaker: tuple[Side, str, int], fresh: bytes) -> bytes:
    side, sender, epoch = speaker
    said = b"\0".join((side.encode(), sender.encode(), b"%d" % epoch, fresh))
    return hmac.new(secret, said, hashlib.sha256).digest()
