"""A front's process: HTTP, the job executor and, in the first front, the cluster manager."""

import asyncio
import os
import secrets
import socket
import sys
from dataclasses import replace

import uvloop

from tercet.api.app import create_app
from tercet.api.server import HttpServer
from tercet.base.errors import Invalid
from tercet.base.ids import Address, Ids
from tercet.cluster_manager.config import GroupConfig
from tercet.messages.effects import Fact
from tercet.messages.events import DrainRequested
from tercet.observe.metrics import Metrics
from tercet.runtime.child import BEAT_S
from tercet.runtime.cluster_machine import MakeClusterManager
from tercet.runtime.codec import Facts, Join, Welcome
from tercet.runtime.control import Beat, Drain, Drained, Failed, Note, Wanted
from tercet.runtime.controls import FrontControls
from tercet.runtime.driver import Ports
from tercet.runtime.job_machine import MakeJobExecutor
from tercet.runtime.joining import Joined, join_tree
from tercet.runtime.joining_host import welcome
from tercet.runtime.listening import REMOTE
from tercet.runtime.served import open_served, served_names
from tercet.runtime.service import FrontService
from tercet.runtime.setting import Setting
from tercet.runtime.supervise import OrStop, stop_on_loop_errors
from tercet.runtime.telling import Telling

READY_LOOK_S = 0.02
DRAIN_LOOK_S = 0.02
FLUSH_S = 5.0
"""How long answers may take to leave once every job has ended."""
CLUSTER = Address("cluster")


class Front:
    """The process's side of its two machines."""

    def __init__(self, joined: Joined) -> None:
        begin = joined.begin
        config = begin.config
        self._begin = begin
        self._control = joined.control
        self._sockets = {name: socket.socket(fileno=fd) for name, fd in joined.descriptors.items()}
        self._loop = asyncio.get_running_loop()
        self._setting = Setting(begin, name="front", epoch=begin.epoch)
        model = served_names(config)[0]
        groups = tuple(
            GroupConfig(model=model, count=count, role=role)
            for role, count in config.runtime.counts.items()
            if count
        )
        cluster = config.cluster_manager
        num_agents = max(cluster.num_agents, config.runtime.hosts)
        cluster = replace(cluster, num_agents=num_agents)
        make_cluster = MakeClusterManager(config=cluster, groups=groups, weights=config.weights)
        make_jobs = MakeJobExecutor(
            config=config.job_executor, address=begin.address, seed=secrets.randbits(63)
        )
        self._jobs, self._cluster = make_jobs.make(), make_cluster.make()
        self._service = FrontService(Ids(begin.epoch), self._jobs, self._cluster)
        self._metrics = Metrics(loads=self._service.loads)
        ports = Ports(emit=self._service.emit, fact=self._tell)
        self._job_host = self._setting.host(begin.address, self._jobs, make_jobs, ports=ports)
        self._cluster_host = self._setting.host(
            CLUSTER, self._cluster, make_cluster, ports=Ports(fact=self._tell)
        )
        self._service.host = self._job_host
        self._job_host.peers = self._setting.peers(
            begin.address, self._job_host.deliver, facts=self._count
        )
        self._cluster_host.peers = self._setting.peers(
            CLUSTER, self._cluster_host.deliver, facts=self._count, aside=self._welcome
        )
        self._controls = FrontControls(
            self._jobs,
            self._cluster,
            self._metrics,
            deliver=self._cluster_host.deliver,
            keep=lambda counts: self._note(Wanted(**counts)),
        )
        self._http: HttpServer | None = None
        self._telling = Telling()

    async def serve(self) -> None:
        """Serve until the process is killed."""
        hosts = self._setting.process.hosts
        hosts[self._begin.address] = self._job_host
        hosts[CLUSTER] = self._cluster_host
        self._setting.process.introduce()
        for host in (self._job_host, self._cluster_host):
            if host.peers is not None:
                await host.peers.serve(self._sockets[host.address])
                if host.address + REMOTE in self._sockets:
                    await host.peers.serve(self._sockets[host.address + REMOTE])
        try:
            served = await self._loop.run_in_executor(None, open_served, self._begin.config)
        except Invalid as error:
            self._control.send(Failed(sentence=error.sentence, code=error.code))
            await asyncio.Event().wait()
            return
        self._service.served = (served,)
        self._metrics.serve(served.names[:1])
        config = self._begin.config.api
        app = create_app(self._service, config, metrics=self._metrics, controls=self._controls)
        self._http = HttpServer(app, self._sockets["http"], config=config)
        await self._http.open()
        self._control.end.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._told)
        self._beat()
        self._look()
        await asyncio.Event().wait()

    def _welcome(self, _: Address, said: Join | Welcome) -> Welcome | None:
        """Tell a host that wants to join what it is to be."""
        if not isinstance(said, Join) or not self._begin.public:
            return None
        return welcome(self._begin.config, dict(self._begin.public))

    def _note(self, note: Note) -> None:
        self._control.send(note)

    def _beat(self) -> None:
        self._control.send(Beat())
        self._loop.call_later(BEAT_S, self._beat)

    def _look(self) -> None:
        """Tell the supervisor whenever readiness, or why there is none, changes."""
        failed = self._cluster.standing().failed
        for note in self._telling.news(ready=self._jobs.ready, failed=failed):
            self._control.send(note)
        self._loop.call_later(READY_LOOK_S, self._look)

    def _told(self) -> None:
        try:
            received = self._control.receive()
        except BlockingIOError:
            return
        if received is None:
            os._exit(0)
        if isinstance(received[0], Drain):
            self._loop.create_task(self._drain(received[0].deadline))

    async def _drain(self, deadline: int) -> None:
        """End every job by the deadline, let the answers leave, tell the supervisor."""
        for host in (self._job_host, self._cluster_host):
            host.deliver(DrainRequested(deadline=deadline))
        while self._service.num_open:  # noqa: ASYNC110  once in a life
            await asyncio.sleep(DRAIN_LOOK_S)
        if self._http is not None:
            await self._http.close(within_s=FLUSH_S)
        for host in (self._job_host, self._cluster_host):
            host.close()
        self._control.send(Drained())

    def _tell(self, fact: Fact) -> None:
        self._metrics.on_fact(fact)
        self._setting.log.on_fact(fact)

    def _count(self, sender: Address, facts: Facts) -> None:
        host = sender.removeprefix("agent/") if sender.startswith("agent/") else ""
        for fact in facts.facts:
            self._metrics.on_fact(fact, host=host)
            self._controls.heard(sender, fact)


def main(descriptor: int) -> None:
    """Be a front until the supervisor ends."""
    joined = join_tree(descriptor, "tercet: front")

    async def serve() -> None:
        stop_on_loop_errors(asyncio.get_running_loop(), "front")
        await Front(joined).serve()

    with OrStop(lambda: "the front could not work"):
        uvloop.run(serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
