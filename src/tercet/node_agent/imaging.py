"""Model images of one host: found at other hosts, loaded in blocks, lent to others.

    want       FINDING ──ImageParts──▶ OPENING ──ImageOpened──▶ LOADING ──all blocks──▶ SEALING
                  │ patience over          │ no room               │ no source left       │
                  ▼                        ▼                       ▼ for too long         ▼
               FAILED ◀────────────────────┴───────────────────────┘ ◀──── not whole    HELD

A host that is LOADING lends the blocks that it has already, so that many hosts that start together
load from each other and not all from the first.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

from tercet.base.errors import must
from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Move, Send, Sum, Wake
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.messages.images import (
    ImageFind,
    ImageHeld,
    ImageMessage,
    ImageOpened,
    ImageParts,
    ImagePrefetch,
    ImageSealed,
    OpenImage,
    SealImage,
)
from tercet.messages.kv import Strip
from tercet.pool.images import BLOCK_BYTES, ImageLoad, block_span, num_blocks

WAKE = "images"
ASK_NS = 250_000_000
"""Agents are asked again after this while blocks are missing."""
PATIENCE_NS = 60_000_000_000
"""A load that gains no block for so long has failed."""
BLOCK_NS_MAX = 30_000_000_000
NUM_IMAGES_MAX = 256
_WHOLE = array("i", [0]).tobytes()


class ImageState(StrEnum):
    FINDING = "finding"
    OPENING = "opening"
    LOADING = "loading"
    SEALING = "sealing"
    HELD = "held"


COMING = (ImageState.FINDING, ImageState.LOADING)
"""What other agents are asked about again and again."""


@dataclass(slots=True)
class _Image:
    state: ImageState
    gained_at: int
    load: ImageLoad | None = None
    size: int = 0
    checks: tuple[int, ...] = ()
    """Of a whole image, once somebody asked."""
    summed: dict[int, tuple[int, ...]] | None = None
    """Sums that came already, by first block; None: nobody sums."""
    askers: dict[Address, None] = field(default_factory=dict)
    """Who waits for the sums of a whole image, or for more blocks of one that comes."""


class Imaging:
    """Part of the node agent's machine; `host` is this host's name."""

    def __init__(self, host: str, *, ticket: Callable[[], int]) -> None:
        self._host = host
        self._ticket = ticket
        self._images: dict[str, _Image] = {}
        self._agents: dict[Address, None] = {}
        self._moves: dict[int, tuple[str, int, ImageLoad]] = {}
        self._sums: dict[int, tuple[str, int]] = {}
        """By ticket: the image and the first block of what is summed."""
        self._armed = False
        self._place = int.from_bytes(blake2b(host.encode(), digest_size=4).digest(), "little")
        """Where among equal blocks to begin: hosts that load together begin apart."""
        self.finished: list[tuple[str, str]] = []
        """(key, why it failed or empty) of images that were wanted; whoever wants takes them."""

    def held(self, key: str) -> bool:
        image = self._images.get(key)
        return image is not None and image.state is ImageState.HELD

    def want(self, key: str, now: int, out: list[Effect]) -> None:
        """Load the image unless it is here or coming; `finished` tells."""
        if key in self._images:
            return
        if len(self._images) >= NUM_IMAGES_MAX:
            self.finished.append((key, f"{NUM_IMAGES_MAX} images are held or loading already"))
            return
        self._images[key] = _Image(ImageState.FINDING, now)
        self._ask(key, out)
        self._arm(now, out)

    def on(
        self,
        event: Moved | Summed | ImageHeld | ImageOpened | ImageSealed,
        now: int,
        out: list[Effect],
    ) -> None:
        """Take an event of the driver; moves and sums of others are passed by."""
        match event:
            case ImageHeld():
                self._images[event.key] = _Image(ImageState.HELD, 0, size=event.size)
            case ImageOpened():
                self._opened(event, now, out)
            case ImageSealed():
                self._sealed(event, out)
            case Moved(ticket=ticket) if ticket in self._moves:
                self._moved(event, now, out)
            case Summed(ticket=ticket) if ticket in self._sums:
                self._summed(event, out)
            case _:
                pass

    def heard(self, said: ImageMessage, sender: Address, now: int, out: list[Effect]) -> None:
        """Take a message of another agent, or a wish to have an image at hand."""
        match said:
            case ImageFind(key=key):
                self._asked(key, sender, out)
            case ImageParts():
                self._parts(said, sender, now, out)
            case ImagePrefetch(key=key):
                self.want(key, now, out)

    # peers

    def joined(self, agent: Address, out: list[Effect]) -> None:
        self._agents[agent] = None
        for key, image in self._images.items():
            if image.state in COMING:
                out.append(Send(to=agent, message=ImageFind(key=key), cause=key))

    def gone(self, agent: Address) -> None:
        self._agents.pop(agent, None)
        name = agent.removeprefix("agent/")
        for key, image in self._images.items():
            image.askers.pop(agent, None)
            if image.load is not None:
                image.load.lost(_memory(name, key))

    def _asked(self, key: str, asker: Address, out: list[Effect]) -> None:
        """Answer with the blocks that are here, perhaps later: whole images are summed once."""
        image = self._images.get(key)
        if image is None:
            return
        if image.state is not ImageState.HELD:
            image.askers[asker] = None  # it hears of every block as it comes
        if image.load is not None:
            load = image.load
            self._answer(key, asker, (load.size, bytes(load.have), tuple(load.checks)), out)
        elif image.state is ImageState.HELD and image.checks:
            have = b"\x01" * len(image.checks)
            self._answer(key, asker, (image.size, have, image.checks), out)
        elif image.state is ImageState.HELD:
            image.askers[asker] = None
            self._sum(key, image, out)

    def _parts(self, message: ImageParts, sender: Address, now: int, out: list[Effect]) -> None:
        """Take note of what another host has, and load from it."""
        image = self._images.get(message.key)
        expected = _memory(sender.removeprefix("agent/"), message.key)
        if image is None or message.memory != expected or message.block_bytes != BLOCK_BYTES:
            return
        if len(message.checks) % 8 or message.size <= 0:
            return
        checks = array("Q")
        checks.frombytes(message.checks)
        fits = len(message.have) == num_blocks(message.size)
        if image.state is ImageState.FINDING and fits and not self._lingers(message.key):
            image.state = ImageState.OPENING
            image.load = ImageLoad(message.size, first=self._place)
            image.size = message.size
            out.append(OpenImage(key=message.key, size=message.size, cause=message.key))
        if image.load is not None and message.size == image.size:
            image.load.told(message.memory, message.have, tuple(checks))
        self._pull(message.key, image, now, out)

    # the driver

    def _opened(self, event: ImageOpened, now: int, out: list[Effect]) -> None:
        image = self._images.get(event.key)
        if image is None or image.state is not ImageState.OPENING:
            return
        if event.reason:
            self._fail(event.key, event.reason, out, drop=False)
            return
        image.state = ImageState.LOADING
        image.gained_at = now
        self._pull(event.key, image, now, out)

    def _sealed(self, event: ImageSealed, out: list[Effect]) -> None:
        image = self._images.get(event.key)
        if image is None or image.state is not ImageState.SEALING:
            return
        if event.reason:
            self._fail(event.key, event.reason, out, drop=False)
            return
        load = image.load
        image.state = ImageState.HELD
        image.checks = () if load is None else tuple(load.checks)
        image.load = None
        image.askers.clear()
        self.finished.append((event.key, ""))
        out.append(Fact(name="image.loaded", values=(("bytes", image.size),), cause=event.key))

    def _moved(self, event: Moved, now: int, out: list[Effect]) -> None:
        key, block, load = self._moves.pop(event.ticket)
        image = self._images.get(key)
        if image is None or image.load is not load:
            return  # of a load that has failed meanwhile
        good = event.end is MoveEnd.DONE
        load.ended(block, good=good, corrupt=event.end is MoveEnd.CORRUPT)
        if good:
            image.gained_at = now
            for asker in list(image.askers):
                self._asked(key, asker, out)
        else:
            labels = (("end", event.end.value),)
            out.append(Fact(name="image.block_failed", labels=labels, cause=key))
        self._pull(key, image, now, out)

    def _summed(self, event: Summed, out: list[Effect]) -> None:
        key, first = self._sums.pop(event.ticket)
        image = self._images.get(key)
        if image is None or image.summed is None:
            return
        image.summed[first] = event.checks
        if sum(map(len, image.summed.values())) < num_blocks(image.size):
            return
        image.checks = tuple(one for _, some in sorted(image.summed.items()) for one in some)
        image.summed = None
        askers, image.askers = image.askers, {}
        for asker in askers:
            self._asked(key, asker, out)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Ask on for what is missing; give up on what gained nothing for too long."""
        self._armed = False
        for key, image in list(self._images.items()):
            if image.state not in COMING:
                continue
            if now - image.gained_at >= PATIENCE_NS:
                self._fail(key, "no host gave a block of it for too long", out)
            else:
                self._ask(key, out)
        self._arm(now, out)

    def check(self) -> None:
        """Raise unless every image's record fits its state."""
        for key, image in self._images.items():
            if image.state is ImageState.LOADING:
                must(image.load is not None, f"image {key} loads nothing")
            if image.load is not None:
                image.load.check()

    def _lingers(self, key: str) -> bool:
        """Whether moves of a load that failed still write to the image's memory."""
        return any(name == key for name, _, _ in self._moves.values())

    def _ask(self, key: str, out: list[Effect]) -> None:
        out.extend(Send(to=agent, message=ImageFind(key=key), cause=key) for agent in self._agents)

    def _arm(self, now: int, out: list[Effect]) -> None:
        waits = any(image.state in COMING for image in self._images.values())
        if waits and not self._armed:
            self._armed = True
            out.append(Wake(at=now + ASK_NS, key=WAKE, cause=WAKE))

    def _answer(
        self,
        key: str,
        asker: Address,
        parts: tuple[int, bytes, tuple[int, ...]],
        out: list[Effect],
    ) -> None:
        size, have, checks = parts
        message = ImageParts(
            key=key,
            memory=_memory(self._host, key),
            size=size,
            block_bytes=BLOCK_BYTES,
            have=have,
            checks=array("Q", checks).tobytes(),
        )
        out.append(Send(to=asker, message=message, cause=key))

    def _sum(self, key: str, image: _Image, out: list[Effect]) -> None:
        if image.summed is not None:
            return
        image.summed = {}
        count = num_blocks(image.size)
        # The last block is shorter, and a sum has parts of one length.
        for blocks in (range(count - 1), range(count - 1, count)):
            if not blocks:
                continue
            ticket = self._ticket()
            self._sums[ticket] = (key, blocks.start)
            memory, size = _memory(self._host, key), image.size
            strips = tuple(_strip(memory, size, block) for block in blocks)
            length = block_span(size, blocks.start)[1]
            out.append(Sum(ticket=ticket, sources=strips, part_bytes=length, cause=key))

    def _pull(self, key: str, image: _Image, now: int, out: list[Effect]) -> None:
        load = image.load
        if image.state is not ImageState.LOADING or load is None:
            return
        if load.whole:
            image.state = ImageState.SEALING
            out.append(SealImage(key=key, cause=key))
            return
        while (fetch := load.next()) is not None:
            ticket = self._ticket()
            self._moves[ticket] = (key, fetch.block, load)
            out.append(
                Move(
                    ticket=ticket,
                    source=_strip(fetch.memory, load.size, fetch.block),
                    target=_strip(_memory(self._host, key), load.size, fetch.block),
                    part_bytes=block_span(load.size, fetch.block)[1],
                    check=fetch.check,
                    deadline=now + BLOCK_NS_MAX,
                    cause=key,
                )
            )

    def _fail(self, key: str, reason: str, out: list[Effect], *, drop: bool = True) -> None:
        image = self._images.pop(key)
        if drop and image.load is not None:
            out.append(SealImage(key=key, drop=True, cause=key))
        self.finished.append((key, reason))
        out.append(Fact(name="image.failed", labels=(("reason", reason),), cause=key))


def _memory(host: str, key: str) -> str:
    return f"{host}/image/{key}"


def _strip(memory: str, size: int, block: int) -> Strip:
    start, length = block_span(size, block)
    return Strip(memory, start, length, length, _WHOLE)
