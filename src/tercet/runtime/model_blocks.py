"""The driver's side of loading model images from other hosts: files, memories by name, seals."""

import asyncio
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from tercet.messages.images import IMAGE, ImageHeld, ImageOpened, ImageSealed, OpenImage, SealImage
from tercet.models.image.incoming import IncomingImage, hold_for_lending
from tercet.models.image.shelf import Shelf
from tercet.runtime.config import TreeConfig
from tercet.wires.contract import Region
from tercet.wires.regions import Regions

ImageEvent = ImageHeld | ImageOpened | ImageSealed


class ModelBlocks:
    """Carries out `OpenImage` and `SealImage` for one agent; answers reach `deliver` in the loop.

    Images that are lent to other hosts are in use: nobody removes them from the shelf.
    """

    def __init__(
        self, shelf: Shelf, *, host: str, regions: Regions, deliver: Callable[[ImageEvent], None]
    ) -> None:
        self._shelf = shelf
        self._host = host
        self._regions = regions
        self._deliver = deliver
        self._incoming: dict[str, IncomingImage] = {}
        self._lent: dict[str, NDArray[Any]] = {}
        """What is mapped under a name must stay so."""

    def offer(self, key: str) -> None:
        """Lend an image that is whole on the shelf; nothing happens if it is not there."""
        data = hold_for_lending(self._shelf, key)
        if data is not None:
            self._lend(key, data, writable=False)
            self._deliver(ImageHeld(key=key, size=len(data)))

    def open(self, effect: OpenImage) -> None:
        key = effect.key
        try:
            image = IncomingImage.open(self._shelf, key, effect.size, host=self._host)
        except OSError as error:
            reason = f"there is no room for {effect.size} bytes: {error.strerror}"
            self._later(ImageOpened(key=key, reason=reason))
            return
        self._incoming[key] = image
        self._lend(key, image.bytes, writable=True)
        self._later(ImageOpened(key=key))

    def seal(self, effect: SealImage) -> None:
        image = self._incoming.pop(effect.key, None)
        if image is None:
            return
        if effect.drop:
            self._take_back(effect.key)
            image.drop()
            return
        asyncio.get_running_loop().create_task(self._seal(effect.key, image))

    async def _seal(self, key: str, image: IncomingImage) -> None:
        reason = await asyncio.get_running_loop().run_in_executor(None, image.seal)
        if reason:
            self._take_back(key)
        self._deliver(ImageSealed(key=key, reason=reason))

    def _lend(self, key: str, data: NDArray[Any], *, writable: bool) -> None:
        self._lent[key] = data
        region = Region(
            memory=self._memory(key), address=data.ctypes.data, size=len(data), writable=writable
        )
        self._regions.add(region)

    def _take_back(self, key: str) -> None:
        data = self._lent.pop(key)
        self._regions.remove(self._memory(key), then=lambda: _forget(data))

    def _later(self, event: ImageEvent) -> None:
        # From the loop: the machine may be within the turn that asked.
        asyncio.get_running_loop().call_soon(self._deliver, event)

    def _memory(self, key: str) -> str:
        return f"{self._host}/image/{key}"


def image_of(config: TreeConfig) -> str:
    """Give the key of the image by which the configuration names its model; empty: it names a
    checkpoint, of which every host makes its own image.
    """
    return config.model.removeprefix(IMAGE) if config.model.startswith(IMAGE) else ""


def _forget(data: NDArray[Any]) -> None:
    """The last use of a mapping: it goes with its last reference."""
    del data
