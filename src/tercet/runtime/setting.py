"""What every process with machines sets up alike: identity, connections, recording, log."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tercet.base.ids import Address, Epoch
from tercet.base.machine import Machine
from tercet.messages.effects import Effect
from tercet.observe.log import Log, bridge_libraries
from tercet.runtime.codec import Facts, Join, Welcome, encode
from tercet.runtime.control import Begin
from tercet.runtime.driver import EventT, Host, Ports, Process
from tercet.runtime.identity import Identity
from tercet.runtime.peers import PeerEvent, Peers, PeersConfig
from tercet.runtime.recording import SUFFIX, Recorder


class Setting:
    """One process's surroundings of its machines."""

    def __init__(self, begin: Begin, *, name: str, epoch: Epoch) -> None:
        self.begin = begin
        self.epoch = epoch
        self.log = Log(name, begin.config.observe)
        self.process = Process(clock=time.monotonic_ns)
        bridge_libraries(self.log)

    def host(
        self,
        address: Address,
        machine: Machine[EventT, Effect],
        construction: Struct,
        *,
        ports: Ports,
    ) -> Host[EventT]:
        """Put a machine under the driver; events reach it through the result."""
        runtime = self.begin.config.runtime
        recorder = None
        if runtime.record is not None:
            name = f"{address.replace('/', '-')}.{self.epoch}{SUFFIX}"
            path = Path(runtime.record) / name
            recorder = Recorder(path, encode(construction))
        host = Host(
            self.process, address, machine, epoch=self.epoch, ports=ports, recorder=recorder
        )
        if runtime.check:
            host.check_at_idle()
        return host

    def peers(
        self,
        address: Address,
        deliver: Callable[[PeerEvent], None],
        *,
        facts: Callable[[Address, Facts], None] | None = None,
        aside: Callable[[Address, Join | Welcome], Welcome | None] | None = None,
    ) -> Peers:
        """Give the connections of a machine that lives at the address."""
        identity = Identity(address, self.epoch, self.begin.secret)
        return Peers(identity, deliver, config=PeersConfig(), facts=facts, aside=aside)
