"""The executors as one job executor knows them: who is a member, who is connected.

    member (the cluster manager's list) and connected (a hello was good)  -> usable
    not a member any more, or not connected                               -> lost

Neither list is trusted alone: a member that is not connected cannot be sent to, and a connected
executor that is no member may be stopped at any moment.
"""

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.job_executor.records import ExecutorRecord
from tercet.messages.wire import ExecutorReady, Members

PREFIX = "executor/"
NUM_LEFT_MAX = 4096
NUM_GHOSTS_MAX = 256
"""Lost executors that are remembered in case they come back with old tasks."""


class Fleet:
    """All executors that are members or connected; each is forgotten when it is neither."""

    def __init__(self) -> None:
        self._known: dict[ExecutorId, ExecutorRecord] = {}
        self._ghosts: dict[ExecutorId, ExecutorRecord] = {}
        self._newest = (Epoch(0), -1)

    def get(self, executor: ExecutorId) -> ExecutorRecord | None:
        return self._known.get(executor)

    def former(self, executor: ExecutorId) -> ExecutorRecord | None:
        """Give what is known of it, though it may be neither member nor connected now."""
        return self._known.get(executor) or self._ghosts.get(executor)

    def at(self, peer: Address) -> ExecutorRecord | None:
        """Give the executor that lives at an address, if it is known."""
        number = executor_at(peer)
        return None if number is None else self._known.get(number)

    def all(self) -> list[ExecutorRecord]:
        return list(self._known.values())

    def joined(self, executor: ExecutorId, peer: Address, epoch: Epoch) -> ExecutorRecord:
        """Take note of a connection, in place of the record of a former incarnation."""
        record = self.former(executor)
        if record is None or record.epoch not in (None, epoch):
            model, member = ("", False) if record is None else (record.model, record.member)
            record = ExecutorRecord(executor=executor, address=peer, model=model, member=member)
        self._ghosts.pop(executor, None)
        self._known[executor] = record
        record.connected = True
        record.epoch = epoch
        return record

    def gone(self, record: ExecutorRecord) -> None:
        """Take note that its connection ended."""
        record.connected = False
        self._sweep(record)

    def news(self, epoch: Epoch, message: Members) -> bool:
        """Tell whether a list of members is newer than all that were taken, and take its number."""
        if (epoch, message.version) <= self._newest:
            return False
        self._newest = (epoch, message.version)
        return True

    def name(self, ready: ExecutorReady) -> ExecutorRecord:
        """Take an executor into the members."""
        record = self.former(ready.executor)
        if record is None:
            address = Address(f"{PREFIX}{ready.executor}")
            record = ExecutorRecord(executor=ready.executor, address=address)
        self._ghosts.pop(ready.executor, None)
        self._known[ready.executor] = record
        record.model, record.role = ready.model, ready.role
        record.prefills.num_blocks = ready.num_blocks
        record.member = True
        return record

    def absent(self, message: Members) -> list[ExecutorRecord]:
        """Give the members that a settled list no longer names; nobody if it is not settled."""
        if not message.settled:
            return []
        named = {ready.executor: None for ready in message.executors}
        return [r for r in self._known.values() if r.member and r.executor not in named]

    def expel(self, record: ExecutorRecord) -> None:
        """Take an executor out of the members."""
        record.member = False
        self._sweep(record)

    def check(self) -> None:
        """Raise unless tasks are only where they can be."""
        for number, record in self._known.items():
            name = f"executor {number}"
            must(record.member or record.connected, f"{name} is neither member nor connected")
            must(number not in self._ghosts, f"{name} is both known and forgotten")
            must(record.usable or not record.tasks, f"{name} is lost but has tasks")
            pending = sum(task.num_pending for task in record.tasks.values())
            must(record.num_tokens == pending, f"{name}: {record.num_tokens} tokens != {pending}")
            for wire, task in record.tasks.items():
                must(task.wire == wire, f"{name} knows a task by another id")
                must(task.executor is record, f"{name} has a task that is elsewhere")
            trial = record.trial
            must(
                trial is None or (trial.suspect and trial.wire in record.tasks),
                f"{name} tries a task that is not its own or no suspect",
            )

    def _sweep(self, record: ExecutorRecord) -> None:
        if record.member or record.connected:
            return
        self._known.pop(record.executor, None)
        if record.left or record.abandoned:
            self._ghosts[record.executor] = record
            while len(self._ghosts) > NUM_GHOSTS_MAX:
                del self._ghosts[next(iter(self._ghosts))]


def remember_left(record: ExecutorRecord) -> None:
    """Before its tasks are taken away: note under which ids it may still speak of them."""
    for wire in record.tasks:
        record.left[wire] = None
    while len(record.left) > NUM_LEFT_MAX:
        del record.left[next(iter(record.left))]


def executor_at(peer: Address) -> ExecutorId | None:
    """Read the number out of an executor's address; None for any other peer."""
    if not peer.startswith(PREFIX):
        return None
    number = peer[len(PREFIX) :]
    return ExecutorId(int(number)) if number.isdecimal() else None
