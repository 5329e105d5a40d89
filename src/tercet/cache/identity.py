"""What makes two runs of KV the same: the one definition of a block's key (invariant I3).

    root  = H("tercet.root", namespace, fingerprint)       a tenant's tree of one model
    key_1 = H(root,  tokens 0..15)                         names the first block
    key_2 = H(key_1, tokens 16..31)                        ... and all that lies before it

H is BLAKE2b with 16 bytes of digest. The namespace is part of every key, so tenants never share
(I8); the fingerprint holds weights and numerics, so neither do two models or two kinds of
arithmetic. Where a block lies is no part of its key.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from tercet.base.ids import BLOCK_TOKENS

BLOCK_BYTES = 4 * BLOCK_TOKENS
KEY_BYTES = 16


def pack(tokens: Sequence[int]) -> bytes:
    """Give tokens as consecutive i4; every machine we run on is little-endian."""
    return array("i", tokens).tobytes()


def encoded(name: str) -> bytes:
    """Give the bytes of a name; any string has some, lone surrogates too."""
    return name.encode("utf-8", "surrogatepass")


def root_key(namespace: str, fingerprint: str) -> bytes:
    """Give the parent key of every first block of a tenant and a model."""
    digest = blake2b(b"tercet.root", digest_size=KEY_BYTES)
    for part in (encoded(namespace), encoded(fingerprint)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def child_key(parent: bytes, content: bytes) -> bytes:
    """Give the key of the block that holds `content` (packed tokens) after `parent`'s."""
    return blake2b(parent + content, digest_size=KEY_BYTES).digest()


def keys_of(tokens: Sequence[int], root: bytes) -> list[bytes]:
    """Give the keys of all full blocks of a sequence, in order."""
    packed = pack(tokens)
    keys: list[bytes] = []
    key = root
    for at in range(0, len(packed) - BLOCK_BYTES + 1, BLOCK_BYTES):
        key = child_key(key, packed[at : at + BLOCK_BYTES])
        keys.append(key)
    return keys


def blocks_for(num_tokens: int) -> int:
    """Give how many blocks hold so many tokens."""
    return (num_tokens + BLOCK_TOKENS - 1) // BLOCK_TOKENS
