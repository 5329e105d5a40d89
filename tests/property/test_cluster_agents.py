"""Whatever exits, hangs, restarts or is lost: in the end there is what was wanted, and all know."""

from fake_hosts import FakeHost, Hosts, Process
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.messages.wire import Role
from tercet.node_agent.config import NodeAgentConfig

AGENT = NodeAgentConfig(start_timeout_s=8.0, progress_floor_s=2.0)
PICK = st.integers(0, 11)


class Cluster(RuleBasedStateMachine):
    @initialize(count=st.integers(1, 3), hosts=st.sampled_from(["a", "ab"]))
    def begin(self, count: int, hosts: str) -> None:
        config = ClusterManagerConfig(
            num_agents=len(hosts),
            backoff_s_max=4.0,
            start_timeout_s=12.0,
            agent_timeout_s=5.0,
        )
        self.world = Hosts(config, AGENT, hosts, count=count)
        for host in self.world.hosts:
            self.world.connect(host)

    def host(self, index: int) -> FakeHost:
        return self.world.hosts[index % len(self.world.hosts)]

    def process(self, index: int) -> tuple[FakeHost, Process] | None:
        pairs = [(h, p) for h in self.world.hosts for p in h.processes.values()]
        return pairs[index % len(pairs)] if pairs else None

    @rule(index=PICK, times=st.integers(1, 5))
    def deliver(self, index: int, times: int) -> None:
        for _ in range(times):
            self.world.deliver(self.host(index))

    @rule(index=PICK, well=st.integers(0, 3))
    def spawn(self, index: int, well: int) -> None:
        found = self.process(index)
        if found and not found[1].spawned:
            self.world.spawn(*found, well=well > 0)

    @rule(index=PICK)
    def announce(self, index: int) -> None:
        found = self.process(index)
        if found and found[1].spawned and not found[1].killed and not found[1].hung:
            self.world.announce(*found)

    @rule(index=PICK)
    def exit(self, index: int) -> None:
        found = self.process(index)
        if found and found[1].spawned:
            self.world.exit(*found)

    @rule(index=PICK)
    def hang(self, index: int) -> None:
        found = self.process(index)
        if found:
            found[1].hung = True

    @rule(times=st.integers(1, 3))
    def progress(self, times: int) -> None:
        for _ in range(times):
            self.world.progress()

    @rule(index=PICK)
    def long_absence(self, index: int) -> None:
        """The agent is given up, and comes back with executors that were replaced meanwhile."""
        host = self.host(index)
        if host.connected:
            self.world.disconnect(host)
        self.world.pass_time(6)
        for other in self.world.hosts:
            if other is not host:
                self.world.progress()

    @rule(index=PICK)
    def disconnect(self, index: int) -> None:
        if self.host(index).connected:
            self.world.disconnect(self.host(index))

    @rule(index=PICK)
    def connect(self, index: int) -> None:
        self.world.connect(self.host(index))

    @rule(index=PICK)
    def restart_agent(self, index: int) -> None:
        self.world.restart_agent(self.host(index))

    @rule(prefill=st.integers(0, 2), decode=st.integers(0, 2), colocated=st.integers(0, 2))
    def want(self, prefill: int, decode: int, colocated: int) -> None:
        counts = {Role.PREFILL: prefill, Role.DECODE: decode, Role.COLOCATED: colocated}
        self.world.want(counts)

    @rule()
    def say_roles(self) -> None:
        self.world.say_roles()

    @rule(seconds=st.integers(1, 4))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        world.settle()
        standing = world.manager.standing()
        count = sum(world.counts.values())
        now = (standing.num_ready, standing.num_starting, standing.num_stopping)
        assert now == (count, 0, 0)
        serving = world.serving()
        assert len(serving) == count
        assert world.members is not None
        assert world.members.settled
        assert [one.executor for one in world.members.executors] == serving
        for role, wanted in world.counts.items():
            assert sum(one.role is role for one in world.members.executors) == wanted
        living = [process for host in world.hosts for process in host.processes.values()]
        assert len(living) == count, "a process lives that nobody wants"
        assert not any(process.hung for process in living), "a frozen executor counts as ready"


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
