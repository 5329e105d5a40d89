"""Model images on their way between hosts: who has which blocks of one, and its loading.

agent ──ImageFind──▶ agents ──ImageParts──▶ it, then Moves of blocks from all that have some
"""

from msgspec import Struct

IMAGE = "image:"
"""Before an image's key in the name of a model: what executors map, on whatever host."""


class ImageFind(Struct, frozen=True, kw_only=True, tag=True):
    """Which blocks of this image do you have? Asked again while blocks are missing."""

    key: str


class ImageParts(Struct, frozen=True, kw_only=True, tag=True):
    """The blocks that the sender can be read from now; it may have more a moment later."""

    key: str
    memory: str
    """`<host>/image/<key>`"""
    size: int
    block_bytes: int
    have: bytes
    """u1 for each block: 1 if it is there."""
    checks: bytes
    """u8 for each block: the fold of its one part; of blocks that are not there 0."""


class ImagePrefetch(Struct, frozen=True, kw_only=True, tag=True):
    """Have this image on your shelf, whether or not an executor wants it."""

    key: str


ImageMessage = ImageFind | ImageParts | ImagePrefetch


# effects


class OpenImage(Struct, frozen=True, kw_only=True, tag=True):
    """Make room for an image, the least recently used whole ones going, and a memory
    `<host>/image/<key>` to load it into; `ImageOpened` answers.
    """

    key: str
    size: int
    cause: str = ""


class SealImage(Struct, frozen=True, kw_only=True, tag=True):
    """All blocks are there: verify the whole by its own digest and put it on the shelf;
    `ImageSealed` answers. With `drop` it is given up instead.
    """

    key: str
    drop: bool = False
    cause: str = ""


# events


class ImageHeld(Struct, frozen=True, kw_only=True, tag=True):
    """An image is whole on this host's shelf, and readable under `<host>/image/<key>`."""

    key: str
    size: int


class ImageOpened(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    reason: str = ""
    """Why there is no room; empty: it is open."""


class ImageSealed(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    reason: str = ""
    """Why it is not whole; empty: it is on the shelf."""
