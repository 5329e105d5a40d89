"""A network between hosts that are played on one machine, where that is permitted.

    the user's namespace        the switch's           host 1's            host 2's
    [ host 0, tercet<pid> ]──[ port0   bridge   port1 ]──[ lan ]
                                                port2 ]────────────────────[ lan ]

Host 0 stays where the user is, so that the user reaches it as always. No namespace has a name that
would outlive us: each lives in a keeper, a process that ends with us however we end, and the kernel
takes a namespace's links away with it, those of their pairs that lie elsewhere included. The switch
has a namespace of its own because rules of the user's firewall may hold for bridges of the user's.

Bandwidth is limited (tbf) and latency added (netem, half of it in each direction) where a host's
bytes leave it. Which of them the kernel can do is tried, never assumed.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network

from tercet.runtime.process import die_with_parent

HOSTS_MAX = 16
TOOL_S = 20.0
REACH_S = 5.0
"""A host that does not reach host 0 by then is not connected with it."""
_KEEP = ("sh", "-c", "echo; exec cat")
_SBIN = "/usr/sbin:/sbin"
_GSO_BYTES = 68 << 10
"""What leaves in one piece, at most, headers included: a smaller burst cuts pieces up."""
_QUEUE_S = 0.05
_LATENCY_US_MIN = 1
_REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), {})"


class NetworkRefusedError(OSError):
    """The hosts get no network of their own, and why; nothing of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """How slow each host's way to the others is; 0: as fast as it goes."""

    bytes_per_s: float = 0.0
    latency_s: float = 0.0
    """Of a question and its answer together."""


# what is asked of `ip` and `tc`: pure


def taken_networks(routes: str) -> list[IPv4Network]:
    """Read what `ip -json -4 route show table all` says, default routes and their halves aside."""
    found = []
    for route in json.loads(routes or "[]"):
        try:
            network = ipaddress.IPv4Network(route.get("dst", ""), strict=False)
        except ValueError:  # `default`
            continue
        if network.prefixlen > 1:
            found.append(network)
    return found


def free_network(taken: Iterable[IPv4Network], *, first: int = 0) -> IPv4Network | None:
    """Give a private range that overlaps none of these; `first`: where among them to begin."""
    known = list(taken)
    for private in ("10.203.0.0/16", "172.29.0.0/16", "192.168.0.0/16"):
        ranges = list(IPv4Network(private).subnets(new_prefix=24))
        for number in range(len(ranges)):
            network = ranges[(first + number) % len(ranges)]
            if not any(network.overlaps(other) for other in known):
                return network
    return None


def user_commands(device: str, switch: int, address: str) -> str:
    """Connect the user's namespace, where host 0 is, with the switch's."""
    return (
        f"link add {device} type veth peer name port0 netns {switch}\n"
        f"addr add {address}/24 dev {device}\n"
        f"link set {device} up\n"
    )


def switch_commands(keepers: dict[int, int]) -> str:
    """Connect the switch with every host; `keepers`: the processes that keep their namespaces."""
    lines = ["link add bridge type bridge", "link set bridge up"]
    for host, keeper in keepers.items():
        lines.append(f"link add port{host} type veth peer name lan netns {keeper}")
    for port in (0, *keepers):
        lines += [f"link set port{port} master bridge", f"link set port{port} up"]
    return "\n".join(lines) + "\n"


def host_commands(address: str) -> str:
    """Let a host use its link."""
    return f"link set lo up\naddr add {address}/24 dev lan\nlink set lan up\n"


def latency_command(device: str, limits: LinkLimits) -> str:
    """Half on the way out of each host: a question and its answer take all of it together."""
    microseconds = max(_LATENCY_US_MIN, round(limits.latency_s * 1e6 / 2))
    return f"qdisc add dev {device} root handle 1: netem delay {microseconds}us limit 100000\n"


def bandwidth_command(device: str, limits: LinkLimits, *, behind_latency: bool) -> str:
    """A token bucket; what waits in it for longer than a moment is dropped, as by a router."""
    rate = limits.bytes_per_s
    burst = max(_GSO_BYTES, int(rate / 100))
    place = "parent 1:1 handle 10:" if behind_latency else "root"
    return (
        f"qdisc add dev {device} {place} tbf rate {max(8, int(rate * 8))}bit burst {burst} "
        f"limit {burst + max(_GSO_BYTES, int(rate * _QUEUE_S))}\n"
    )


# the edge


class HostNetwork:
    """An open network; `close` or our end takes all of it away."""

    def __init__(self, device: str, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        """Of each host."""
        self.limits = LinkLimits()
        """Those that the kernel keeps; what else was asked for is up to the wires."""
        self._device = device
        self._switch: subprocess.Popen[str] | None = None
        self._keepers: dict[int, subprocess.Popen[str]] = {}

    def prefix(self, host: int) -> list[str]:
        """Give the beginning of a command that runs in the namespace of a host."""
        if host == 0:
            return []
        return [_tool("nsenter"), "--target", str(self._keepers[host].pid), "--net", "--"]

    def connect(self) -> None:
        """Make namespaces, links and addresses."""
        self._switch = _keeper()
        self._keepers = {host: _keeper() for host in range(1, len(self.addresses))}
        keepers = {host: keeper.pid for host, keeper in self._keepers.items()}
        user = user_commands(self._device, self._switch.pid, self.addresses[0])
        _batch("ip", user, [])
        _batch("ip", switch_commands(keepers), _within(self._switch.pid))
        for host, keeper in keepers.items():
            _batch("ip", host_commands(self.addresses[host]), _within(keeper))

    def limit(self, wanted: LinkLimits) -> None:
        """Have the kernel keep of the limits what it can."""
        device = self._device
        latency, rate = wanted.latency_s, wanted.bytes_per_s
        if latency and not _can(device, latency_command(device, wanted)):
            latency = 0.0
        if rate and not _can(device, bandwidth_command(device, wanted, behind_latency=False)):
            rate = 0.0
        self.limits = kept = LinkLimits(bytes_per_s=rate, latency_s=latency)
        for host in range(len(self.addresses)):
            end = "lan" if host else device
            commands = latency_command(end, kept) if latency else ""
            if rate:
                commands += bandwidth_command(end, kept, behind_latency=bool(latency))
            if commands:
                _batch("tc", commands, self.prefix(host))

    def reach(self) -> None:
        """See that every host can talk to host 0: a firewall may be of another mind."""
        with socket.create_server((self.addresses[0], 0)) as listener:
            listener.settimeout(2 * REACH_S)
            port = listener.getsockname()[1]
            for host in self._keepers:
                command = [sys.executable, "-c", _REACH.format(REACH_S), self.addresses[0]]
                with _started([*self.prefix(host), *command, str(port)]) as dialer:
                    try:
                        listener.accept()[0].close()
                    except OSError as error:
                        raise NetworkRefusedError(f"host {host} does not reach host 0") from error
                    finally:
                        dialer.kill()

    def close(self) -> None:
        """Nothing of it is left once the processes of the hosts have ended, too."""
        with contextlib.suppress(NetworkRefusedError):
            _batch("ip", f"link del {self._device}\n", [])
        for keeper in (self._switch, *self._keepers.values()):
            if keeper is not None:
                keeper.kill()
                keeper.communicate()


def open_network(hosts: int, limits: LinkLimits) -> HostNetwork:
    """Give a network of so many hosts, working; `NetworkRefusedError` says why there is none."""
    routes = _run([_tool("ip"), "-json", "-4", "route", "show", "table", "all"], "", shown="ip")
    # Others who begin at this moment find the same ranges free.
    network = free_network(taken_networks(routes), first=os.getpid())
    if network is None:
        raise NetworkRefusedError("no private range of addresses is free")
    addresses = tuple(str(network[number + 1]) for number in range(hosts))
    opened = HostNetwork(f"tercet{os.getpid()}", addresses)
    try:
        opened.connect()
        opened.limit(limits)
        opened.reach()
    except BaseException:
        opened.close()
        raise
    return opened


def _keeper() -> "subprocess.Popen[str]":
    """Start the process that a new namespace lives in: it ends with us, and at the end of a pipe
    that nobody else has.
    """
    keeper = _started([_tool("unshare"), "--net", "--", *_KEEP])
    line = "" if keeper.stdout is None else keeper.stdout.readline()
    if line != "\n":
        why = keeper.communicate()[1].strip()
        raise NetworkRefusedError(why or "no namespace can be made")
    return keeper


def _started(command: list[str]) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,  # Ctrl-C is for the command
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    except OSError as error:
        raise NetworkRefusedError(f"{command[0]}: {error.strerror}") from error


def _can(device: str, command: str) -> bool:
    """Whether the kernel takes this; it is taken back at once."""
    try:
        _batch("tc", command, [])
    except NetworkRefusedError:
        return False
    _batch("tc", f"qdisc del dev {device} root\n", [])
    return True


def _within(keeper: int) -> list[str]:
    return [_tool("nsenter"), "--target", str(keeper), "--net", "--"]


def _batch(tool: str, commands: str, prefix: list[str]) -> None:
    """All of these, in order, up to the first that fails."""
    _run([*prefix, _tool(tool), "-batch", "-"], commands, shown=tool)


def _run(command: list[str], said: str, *, shown: str) -> str:
    try:
        ran = subprocess.run(  # noqa: S603
            command, input=said, capture_output=True, text=True, timeout=TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkRefusedError(f"{shown}: {error}") from error
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
        raise NetworkRefusedError(f"{shown}: {lines[0]}")
    return ran.stdout


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=_SBIN)
    if found is None:
        raise NetworkRefusedError(f"there is no {name}")
    return found
