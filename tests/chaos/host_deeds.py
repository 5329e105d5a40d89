"""What can be done to hosts of a cluster, and to the connections between them."""

import signal
import time

from cluster import EXECUTOR, Cluster, Joined, connections, cut, cut_ports
from handed_over import status
from saboteur import Deed, Saboteur

AWAY_S = (0.5, 9.0)
CUTTING_S = 1.0
CUT_GAP_S = 0.05


class HostDeeds:
    """Those to the hosts that joined: the first one has the front, whose end ends streams."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def by_name(self, *, may_cut: bool) -> dict[str, Deed]:
        """All of them, or all that work without leave to break connections."""
        deeds: dict[str, Deed] = {
            "kill a decode of another host": lambda who, name: self._one(who, name, signal.SIGKILL),
            "stop a decode of another host": lambda who, name: self._one(who, name, signal.SIGSTOP),
            "kill another host's agent": self._kill_agent,
            "kill a host, which comes back": self._kill_host,
            "stop a host, and let it go on": self._stop_host,
        }
        if may_cut:
            deeds |= {"cut every transfer": self._cut, "cut a host off": self._cut_off}
        return deeds

    def _any(self, saboteur: Saboteur) -> Joined:
        return saboteur.rand.choice(self._cluster.joined)

    def _note(self, saboteur: Saboteur, name: str, titles: list[str]) -> None:
        tasks = saboteur.tasks()
        numbers = [title.split()[3] for title in titles if title.startswith(EXECUTOR)]
        saboteur.note(name, sum(tasks.get(number, 0) for number in numbers))

    def _one(self, saboteur: Saboteur, name: str, number: int) -> None:
        every = [title for host in self._cluster.joined for title in host.processes()]
        if titles := sorted(title for title in every if title.split()[4:5] == ["decode"]):
            saboteur.harm(name, [saboteur.rand.choice(titles)], number)

    def _kill_agent(self, saboteur: Saboteur, name: str) -> None:
        processes = self._any(saboteur).processes()
        saboteur.spare(name)
        for pid in processes.get("tercet: node agent", ()):
            self._cluster.kill(pid)

    def _kill_host(self, saboteur: Saboteur, name: str) -> None:
        host = self._any(saboteur)
        self._note(saboteur, name, list(host.processes()))
        host.kill()
        time.sleep(saboteur.rand.uniform(*AWAY_S))
        host.start()

    def _stop_host(self, saboteur: Saboteur, name: str) -> None:
        """It knows nothing of the time that it was away, and goes on with what it was at."""
        host = self._any(saboteur)
        self._note(saboteur, name, list(host.processes()))
        host.signal(signal.SIGSTOP)
        time.sleep(saboteur.rand.uniform(*AWAY_S))
        host.signal(signal.SIGCONT)

    def _cut(self, saboteur: Saboteur, name: str) -> None:
        """Break all that carries bytes of keys and values, again and again for a while."""
        ports = {int(host["data"].rpartition(":")[2]) for host in status(self._cluster)["hosts"]}
        saboteur.spare(name)
        until = time.monotonic() + CUTTING_S
        while time.monotonic() < until:
            cut_ports(ports)
            time.sleep(saboteur.rand.uniform(0.0, CUT_GAP_S))

    def _cut_off(self, saboteur: Saboteur, name: str) -> None:
        """Break everything that it has with others, once."""
        host = self._any(saboteur)
        self._note(saboteur, name, list(host.processes()))
        cut(connections(host))
