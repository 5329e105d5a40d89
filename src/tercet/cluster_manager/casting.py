"""Who serves in which role: where one role has too many and another too few, some change over."""

from collections.abc import Iterator, Sequence

from tercet.cluster_manager.group import Group
from tercet.cluster_manager.roster import Roster
from tercet.messages.effects import Send
from tercet.messages.wire import ChangeRole


def relabel(groups: Sequence[Group], roster: Roster) -> None:
    """Where a role has too many executors and another of the same model too few, let the oldest
    surplus ones that serve change over: they keep their tasks and their caches.
    """
    for group in groups:
        spare = len(roster.active(*group.kind)) - group.wanted.count
        if spare <= 0:
            continue
        for other in groups:
            if other is group or other.wanted.model != group.wanted.model:
                continue
            short = other.wanted.count - len(roster.active(*other.kind))
            changed = roster.serving(*group.kind)[: max(0, min(spare, short))]
            for member in changed:
                member.role = other.wanted.role
            spare -= len(changed)


def cast(roster: Roster, *, again: bool) -> Iterator[Send]:
    """Tell those that serve in another role than they shall; if `again`, those too that know."""
    for member in roster.members.values():
        role = member.role
        if not member.miscast or role is None or (member.told is role and not again):
            continue
        member.told = role
        message = ChangeRole(executor=member.executor, role=role)
        yield Send(to=member.agent, message=message, cause=f"executor/{member.executor}")
