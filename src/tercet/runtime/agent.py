"""The node agent's process: makes arenas, has executors forked, watches and kills them."""

import asyncio
import os
import socket
import sys
import time

import uvloop

from tercet.base.errors import Invalid, must
from tercet.base.ids import Address, ExecutorId
from tercet.engine.memory import arena_layout, make_arena, populate_arena
from tercet.messages.effects import Fact, Forget, Kill, Spawn
from tercet.messages.events import (
    Adopted,
    NodeAgentEvent,
    ProcessExited,
    Received,
    Spawned,
    SpawnFailed,
)
from tercet.messages.wire import ExecutorReady, HostRefused, Members
from tercet.models.image.shelf import Shelf
from tercet.runtime.agent_machine import MakeNodeAgent
from tercet.runtime.agent_memory import AgentMemories
from tercet.runtime.arenas import Arenas, share_cores
from tercet.runtime.child import BEAT_S
from tercet.runtime.control import (
    Beat,
    Born,
    Channel,
    Failed,
    Fork,
    Go,
    Held,
    Hold,
    Lend,
    NewZygote,
    Reaped,
    Release,
    Unmapped,
    Wants,
    ZygoteSilent,
    channel_from,
    channel_pair,
)
from tercet.runtime.driver import Ports
from tercet.runtime.joining import Joined, join_tree
from tercet.runtime.lendings import Lendings
from tercet.runtime.links import host_of, to_dial
from tercet.runtime.listening import REMOTE
from tercet.runtime.model_blocks import ModelBlocks, image_of
from tercet.runtime.opening import cache_of
from tercet.runtime.outgoing import OutgoingFacts
from tercet.runtime.patience import ZygotePatience
from tercet.runtime.peers import PeerEvent
from tercet.runtime.pool_memory import open_pool
from tercet.runtime.residents import Resident, make_progress_page
from tercet.runtime.setting import Setting
from tercet.runtime.supervise import OrStop, stop_on_loop_errors

SAMPLE_S = 0.1
STATUS_WAIT_S = 0.1
"""A process's end waits so long for the supervisor's word on how it came."""
CLUSTER = Address("cluster")


class Agent:
    """The process's side of the node agent's machine."""

    def __init__(self, joined: Joined) -> None:
        begin, descriptors = joined.begin, joined.descriptors
        self._begin = begin
        self._control = joined.control
        self._zygote = channel_from(descriptors["zygote"]) if "zygote" in descriptors else None
        self._patience = ZygotePatience()
        names = (begin.address, begin.address + REMOTE)
        self._listeners = [socket.socket(fileno=descriptors[n]) for n in names if n in descriptors]
        self._setting = Setting(begin, name="agent", epoch=begin.epoch)
        self._residents: dict[ExecutorId, Resident] = {}
        self._facts = OutgoingFacts()
        self._arenas = Arenas(begin.config.runtime, self._setting.log)
        self._threads = share_cores(begin.config.runtime, self._setting.log)
        host = begin.address.removeprefix("agent/")
        runtime = begin.config.runtime
        self._lendings = Lendings(host, sealed_max=runtime.num_executors, log=self._setting.log)
        self._pool, pool = open_pool(begin, self._setting.log)
        self._loop = asyncio.get_running_loop()
        self._memories = AgentMemories(
            host, self._deliver, secret=begin.secret, loop=self._loop, pool=self._pool
        )
        data = self._memories.serve(runtime)
        self._images = ModelBlocks(
            Shelf(cache_of(begin.config)),
            host=host,
            regions=self._memories.regions,
            deliver=self._deliver,
        )
        construction = MakeNodeAgent(
            config=begin.config.node_agent,
            address=begin.address,
            next_executor=begin.next_executor,
            image=image_of(begin.config),
            host=host_of(begin, data),
            pool=pool if pool.on else None,
        )
        ports = Ports(
            spawn=self._spawn,
            kill=self._kill,
            forget=self._forget,
            move=self._memories.mover.move,
            sum=self._memories.mover.sum,
            open_image=self._images.open,
            seal_image=self._images.seal,
            fact=self._tell,
        )
        self._host = self._setting.host(
            begin.address, construction.make(), construction, ports=ports
        )
        self._peers = self._setting.peers(begin.address, self._peer_said)
        self._host.peers = self._peers

    async def serve(self, held: tuple[tuple[Held, list[int]], ...]) -> None:
        """Work until the process is killed."""
        for note, descriptors in held:
            self._adopt(note, descriptors)
        if image := image_of(self._begin.config) or self._begin.config.image:
            self._images.offer(image)
        for listener in self._listeners:
            await self._peers.serve(listener)
        self._peers.dial(self._begin.names[CLUSTER])
        self._control.end.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._told)
        self._beat()
        self._sample()
        await self._pool.scan(self._deliver)
        await self._pool.populate()
        await asyncio.Event().wait()

    def _deliver(self, event: NodeAgentEvent) -> None:
        self._host.deliver(event)

    def _peer_said(self, event: PeerEvent) -> None:
        self._deliver(event)
        if isinstance(event, Received) and isinstance(event.message, ExecutorReady):
            self._share(event.message)
        elif isinstance(event, Received) and isinstance(event.message, HostRefused):
            self._control.send(Failed(sentence=event.message.reason, for_good=True))
        elif isinstance(event, Received) and isinstance(event.message, Members):
            self._memories.hosts(event.message.hosts)
            for endpoint in to_dial(self._begin.address, event.message.hosts):
                self._peers.dial(endpoint)

    def _share(self, ready: ExecutorReady) -> None:
        """Lend the arena of one that serves to the others of its host, and theirs to it."""
        resident = self._residents.get(ready.executor)
        layout = ready.reach.layout
        if resident is None or layout is None:
            return
        arena = arena_layout(layout.block_bytes, ready.num_blocks)
        self._memories.add_arena(resident, arena)
        others = [one for one in self._residents.values() if one is not resident and not one.dead]
        self._lendings.add(resident, arena, others)
        self._lendings.lend_segments(self._pool.segments, resident)

    def _tell(self, fact: Fact) -> None:
        self._setting.log.on_fact(fact)
        self._facts.note(fact)

    # the supervisor

    def _told(self) -> None:
        try:
            received = self._control.receive()
        except BlockingIOError:
            return
        if received is None:
            os._exit(0)
        note, descriptors = received
        match note:
            case Reaped(pid=pid, how=how):
                for resident in list(self._residents.values()):
                    if resident.pid == pid:
                        resident.how = how
                        self._end(resident)
            case NewZygote():
                if self._zygote is not None:
                    self._zygote.close()
                self._zygote = channel_from(descriptors[0])
            case _:
                must(False, f"an agent is told {type(note).__name__}")

    def _hold(self, resident: Resident) -> None:
        note = Hold(executor=resident.executor, pid=resident.pid, parts=tuple(resident.parts))
        self._control.send(note, tuple(resident.parts.values()))

    def _adopt(self, note: Held, descriptors: list[int]) -> None:
        parts = dict(zip(note.parts, descriptors, strict=True))
        resident = Resident(note.executor, parts["progress"])
        resident.parts.update(parts)
        resident.pid = note.pid
        self._residents[note.executor] = resident
        if "channel" in parts:
            resident.birth = channel_from(os.dup(parts["channel"]))
            resident.birth.end.setblocking(False)
            self._loop.add_reader(resident.birth.fileno(), self._heard, resident, resident.birth)
        self._deliver(Adopted(executor=note.executor, pid=note.pid))
        self._watch(resident)

    # births

    def _spawn(self, effect: Spawn) -> None:
        executor = effect.executor
        ours, theirs = channel_pair()
        resident = Resident(executor, make_progress_page())
        resident.birth = ours
        self._residents[executor] = resident
        wish = Fork(
            executor=executor,
            role=effect.role,
            model=effect.model,
            epoch=self._begin.epoch,
            threads=self._threads,
            asked=time.monotonic_ns(),
        )
        parts = (theirs.fileno(), resident.parts["progress"])
        asked = self._zygote is not None and self._zygote.send(wish, parts)
        theirs.close()
        ours.end.setblocking(False)
        if asked:
            self._loop.add_reader(ours.fileno(), self._heard, resident, ours)
            self._loop.call_later(self._patience.seconds, self._look_for, resident, self._zygote)
        else:
            self._unborn(resident, "there is no zygote now")

    def _heard(self, resident: Resident, birth: Channel) -> bool:
        """Take one note; False if there is none now."""
        try:
            received = birth.receive()
        except BlockingIOError:
            return False
        if received is None:
            self._loop.remove_reader(birth.fileno())
            resident.close_birth()
            if resident.pidfd is None:
                self._unborn(resident, "it died at birth")
            return False
        note, descriptors = received
        match note:
            case Born(pid=pid):
                resident.pid = pid
                resident.parts["process"] = descriptors[0]
                self._patience.born()
                self._hold(resident)
                birth.send(Go())
                self._watch(resident)
                self._deliver(Spawned(executor=resident.executor, pid=pid))
            case Wants():
                self._lend(resident, note)
            case Failed():
                self._failed(resident, note)
            case Unmapped(memory=memory):
                self._lendings.unmapped(resident.executor, memory)
            case _:
                must(False, f"an executor says {type(note).__name__} at birth")
        return True

    def _look_for(self, resident: Resident, zygote: Channel | None) -> None:
        """Give up on a birth that takes too long: without its birth channel a process that comes
        late ends itself.
        """
        if resident.birth is not None and resident.pidfd is None:
            self._loop.remove_reader(resident.birth.fileno())
            resident.close_birth()
            if self._patience.over(zygote, self._zygote):
                self._control.send(ZygoteSilent())
            self._unborn(resident, "the zygote is silent")

    def _unborn(self, resident: Resident, reason: str) -> None:
        # From the loop: the machine may be within the turn that asked.
        self._loop.call_soon(self._deliver, SpawnFailed(executor=resident.executor, reason=reason))

    def _lend(self, resident: Resident, wants: Wants) -> None:
        """Hand over an arena at once; its memory is brought in beside everything else."""
        try:
            num_blocks = self._arenas.num_blocks(wants, self._residents.values())
            layout = arena_layout(wants.block_bytes, num_blocks)
            arena = make_arena(f"tercet-kv-{resident.executor}", layout, populate=False)
        except Invalid as error:
            self._failed(resident, Failed(sentence=error.sentence, code=error.code))
            resident.kill()
            return
        except OSError as error:
            self._no_memory(resident, error)
            return
        resident.parts["arena"] = arena
        self._hold(resident)
        if resident.birth is not None:
            note = Lend(block_bytes=wants.block_bytes, num_blocks=num_blocks)
            resident.birth.send(note, (arena,))
            resident.parts["channel"] = os.dup(resident.birth.fileno())
            self._hold(resident)  # from now on the channel outlives this agent
        self._loop.create_task(self._populate(resident, os.dup(arena)))

    async def _populate(self, resident: Resident, arena: int) -> None:
        try:
            await self._loop.run_in_executor(None, populate_arena, arena)
        except OSError as error:
            self._no_memory(resident, error)
        finally:
            os.close(arena)

    def _failed(self, resident: Resident, note: Failed) -> None:
        """Keep why it cannot start for the cluster; a tree that never served ends with it."""
        resident.why = note.sentence
        self._control.send(note)

    def _no_memory(self, resident: Resident, error: OSError) -> None:
        why = error.strerror or str(error)
        self._setting.log.line("error", "arena.failed", executor=resident.executor, why=why)
        resident.why = f"there is no memory for its arena: {why}"
        resident.kill()

    # life and death

    def _watch(self, resident: Resident) -> None:
        if resident.pidfd is not None:
            self._loop.add_reader(resident.pidfd, self._ended, resident)

    def _ended(self, resident: Resident) -> None:
        """The process descriptor says that it is over; the supervisor may say how, shortly."""
        if resident.pidfd is not None:
            self._loop.remove_reader(resident.pidfd)
        self._loop.call_later(STATUS_WAIT_S, self._end, resident)

    def _end(self, resident: Resident) -> None:
        if resident.dead:
            return
        resident.dead = True
        if resident.pidfd is not None:
            self._loop.remove_reader(resident.pidfd)
        while resident.birth is not None and self._heard(resident, resident.birth):
            pass  # what it said before it died still counts
        others = [one for one in self._residents.values() if one is not resident and not one.dead]
        self._lendings.gone(resident.executor, others)
        self._deliver(ProcessExited(executor=resident.executor, reason=resident.reason))

    def _kill(self, effect: Kill) -> None:
        resident = self._residents.get(effect.executor)
        self._setting.log.line(
            "warning", "executor.killed", executor=effect.executor, reason=effect.reason
        )
        if resident is not None:
            resident.kill()

    def _forget(self, effect: Forget) -> None:
        resident = self._residents.pop(effect.executor, None)
        self._memories.remove_arena(effect.executor)
        if resident is not None:
            if resident.birth is not None:
                self._loop.remove_reader(resident.birth.fileno())
            resident.close()
            self._control.send(Release(executor=effect.executor))

    def _beat(self) -> None:
        self._control.send(Beat())
        self._facts.send(self._peers, to=CLUSTER)
        self._loop.call_later(BEAT_S, self._beat)

    def _sample(self) -> None:
        for resident in list(self._residents.values()):
            progress = resident.progress()
            if progress is not None:
                self._deliver(progress)
        self._loop.call_later(SAMPLE_S, self._sample)


def main(descriptor: int) -> None:
    """Be the node agent until the supervisor ends."""
    joined = join_tree(descriptor, "tercet: node agent")

    async def serve() -> None:
        stop_on_loop_errors(asyncio.get_running_loop(), "agent")
        try:
            agent = Agent(joined)
        except Invalid as error:
            joined.control.send(Failed(sentence=error.sentence, code=error.code))
            raise
        await agent.serve(joined.held)

    with OrStop(lambda: "the agent could not work"):
        uvloop.run(serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
