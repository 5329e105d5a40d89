"""Becoming a host of a cluster: what the first host wants of those that join, asked once."""

import asyncio
from dataclasses import replace

import msgspec

from tercet.api.config import ApiConfig
from tercet.base.errors import Invalid
from tercet.base.ids import Address, Epoch
from tercet.messages.events import PeerJoined
from tercet.runtime.codec import UNREADABLE, Join, Welcome
from tercet.runtime.config import TreeConfig
from tercet.runtime.endpoints import host_and_port, tcp
from tercet.runtime.identity import Identity
from tercet.runtime.peers import PeerEvent, Peers, PeersConfig
from tercet.runtime.place import Place

CLUSTER = Address("cluster")
ASK_S = 60.0
"""A cluster that has not answered by then is told to the person who asked."""


def welcome(config: TreeConfig, endpoints: dict[Address, str]) -> Welcome:
    """What the first host tells one that joins: all but what is its own."""
    runtime = replace(config.runtime, cluster_address=None, cluster_secret_file=None, record=None)
    model = f"image:{config.image}" if config.image else config.model
    # Keys of clients are the business of who answers HTTP.
    theirs = replace(config, model=model, image="", runtime=runtime, api=ApiConfig())
    # Agents find each other by the list of members, and executors know but their own.
    machines = {name: where for name, where in endpoints.items() if not name.startswith("agent/")}
    return Welcome(cluster="", config=msgspec.msgpack.encode(theirs), endpoints=machines)


def ask(cluster: str, *, host: str, secret: bytes) -> tuple[TreeConfig, Place]:
    """Ask the cluster at HOST:PORT what a host of it is to be; `Invalid` if nobody answers."""
    address, port = host_and_port(cluster, parameter="cluster")
    answer = asyncio.run(_ask(tcp(address, port), host, secret))
    if answer is None:
        raise Invalid(
            f"No cluster of this secret answers at {cluster} within {ASK_S:g} s.",
            code="no_cluster",
            parameter="cluster",
        )
    try:
        config = msgspec.msgpack.decode(answer.config, type=TreeConfig)
    except UNREADABLE as error:
        raise Invalid(
            f"The cluster at {cluster} has a configuration of another version: {error}.",
            code="other_version",
            parameter="cluster",
        ) from None
    return config, Place(host=host, secret=secret, endpoints=dict(answer.endpoints))


async def _ask(endpoint: str, host: str, secret: bytes) -> Welcome | None:
    answered: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

    def heard(_: Address, parcel: Join | Welcome) -> None:
        if isinstance(parcel, Welcome) and not answered.done():
            answered.set_result(parcel)

    def deliver(event: PeerEvent) -> None:
        if isinstance(event, PeerJoined) and event.peer == CLUSTER:
            peers.say(CLUSTER, Join(host=host))

    identity = Identity(Address(f"joiner/{host}"), Epoch(1), secret)
    peers = Peers(identity, deliver, config=PeersConfig(), aside=heard)
    peers.dial(endpoint)
    try:
        async with asyncio.timeout(ASK_S):
            return await answered
    except TimeoutError:
        return None
    finally:
        await peers.close()
