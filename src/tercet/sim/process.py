"""What an executor's process does beside its machine: it registers, changes its role, dials."""

from msgspec.structs import replace

from tercet.base.ids import Address
from tercet.messages.effects import Send
from tercet.messages.events import PeerJoined, Received
from tercet.messages.wire import ChangeRole, ExecutorReady, Members, Role
from tercet.sim.node import Node, World


class Process:
    """What an executor's process does beside its machine."""

    def __init__(self, world: World, node: Node, agent: Address, ready: ExecutorReady) -> None:
        self._world = world
        self._node = node
        self._agent = agent
        self._ready = ready
        self._linked: dict[Address, None] = {}

    def hears(self, event: object) -> None:
        match event:
            case PeerJoined(peer=peer) if peer == self._agent:
                self._tell()
            case Received(message=ChangeRole(role=role)):
                self._ready = replace(self._ready, role=role)
                self._tell()
            case Received(message=Members() as members):
                self._link(members)

    def _tell(self) -> None:
        self._node.perform(Send(to=self._agent, message=self._ready, cause=self._node.address))

    def _link(self, members: Members) -> None:
        """Of two that need each other the one with the lower id dials."""
        own = next((one for one in members.executors if one.executor == self._ready.executor), None)
        wanted = {
            Address(f"executor/{other.executor}"): None
            for other in members.executors
            if own is not None
            and other.executor > own.executor
            and Role.PREFILL in (own.role, other.role)
        }
        network = self._world.network
        for address in [one for one in self._linked if one not in wanted]:
            if members.settled:
                del self._linked[address]
                network.hang_up(self._node.address, address)
        for address in wanted:
            peer = self._world.nodes.get(address)
            if peer is not None and not network.linked(self._node.address, address):
                self._linked[address] = None
                network.connect(self._node, peer)
