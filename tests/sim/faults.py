"""What goes wrong in a simulated world: one thing after the other, and often several at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.machine import Machine
    from tests.sim.world import World


class Faults:
    """Draws faults and carries them out on a world; all of them end by themselves or with `end`."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        kinds: list[tuple[int, Callable[[Machine], None]]] = [
            (4, self._kill),
            (3, self._crash),
            (3, self._pause),
            (3, self._cut_link),
            (1, self._isolate),
            (2, self._lose_answers),
            (2, self._slow_link),
            (2, self._reset),
            (3, self._cut_from_zookeeper),
            (1, self._expire),
            (1, self._stop_zookeeper),
            (2, self._restart_in_order),
            (1, self._step_clock),
            (2, self._elect_preferred),
            (2, self._reassign),
        ]
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    def strike(self) -> None:
        """One fault, anywhere."""
        [kind] = self._random.choices(self._kinds, self._weights)
        kind(self._random.choice(self._world.machines))

    def end(self) -> None:
        """Everything works again from now on, and whatever was down is started."""
        world = self._world
        world.network.heal()
        if world.zookeeper.is_down:
            world.zookeeper.restart()
        for machine in world.machines:
            machine.resume()
            if machine.session is not None and machine.session.is_cut:
                machine.session.heal()
            if machine.is_down:
                world.later((0.0, 1.0), lambda machine=machine: machine.start())  # type: ignore[misc]

    def _duration(self) -> tuple[float, float]:
        timeout = self._world.scenario.session_timeout_ms / 1000
        return self._random.choice(((0.01, 0.3), (0.1, timeout), (timeout, timeout * 3)))

    def _kill(self, machine: Machine) -> None:
        self._world.note(machine.name, "is killed")
        machine.kill()
        self._world.later(self._duration(), machine.start)

    def _crash(self, machine: Machine) -> None:
        world = self._world
        flushes = world.scenario.flushes
        if not flushes and (world.is_moving or not world.checks.may_lose(machine)):
            return
        world.note(machine.name, "loses power")
        world.checks.machine_lost(machine, flushes=flushes or machine.is_flushed)
        machine.kill(machine=True)

        def boot() -> None:
            world.network.woke(machine.name)
            machine.start()

        world.later(self._duration(), boot)

    def _pause(self, machine: Machine) -> None:
        self._world.note(machine.name, "is paused")
        machine.pause()
        self._world.later(self._duration(), machine.resume)

    def _cut_link(self, machine: Machine) -> None:
        other = self._random.choice([each for each in self._world.machines if each is not machine])
        directions = self._random.choice(((0,), (1,), (0, 1)))
        self._world.note(machine.name, f"is cut from {other.name} {directions}")
        ways = ((machine.name, other.name), (other.name, machine.name))
        for direction in directions:
            self._world.network.cut(*ways[direction])
        self._world.later(self._duration(), self._world.network.heal)

    def _lose_answers(self, machine: Machine) -> None:
        """Clients reach the machine, its answers do not reach them before they lose patience."""
        self._world.note(machine.name, "is not heard by clients")
        for client in self._world.client_names:
            self._world.network.cut(machine.name, client)
        patience = self._world.scenario.request_timeout_ms / 1000

        def end() -> None:
            self._world.network.reset(machine.name)
            self._world.network.heal()

        self._world.later((patience * 0.1, patience * 1.5), end)

    def _isolate(self, machine: Machine) -> None:
        self._world.note(machine.name, "is cut from all")
        for name in self._world.names:
            if name != machine.name:
                self._world.network.cut(machine.name, name)
                self._world.network.cut(name, machine.name)
        if self._random.random() < 0.5 and machine.session is not None:
            machine.session.cut()
        self._world.later(self._duration(), self._reconnect(machine))

    def _reconnect(self, machine: Machine) -> Callable[[], None]:
        session = machine.session

        def reconnect() -> None:
            self._world.network.heal()
            if session is not None and session.is_cut and machine.session is session:
                session.heal()

        return reconnect

    def _slow_link(self, machine: Machine) -> None:
        seconds = self._random.choice((0.02, 0.2, 1.0))
        self._world.note(machine.name, f"is {seconds} s away")
        for name in self._world.names:
            self._world.network.slow(machine.name, name, seconds)
        self._world.later(self._duration(), self._world.network.heal)

    def _reset(self, machine: Machine) -> None:
        self._world.note(machine.name, "loses its connections")
        self._world.network.reset(machine.name)

    def _cut_from_zookeeper(self, machine: Machine) -> None:
        if machine.session is None:
            return
        self._world.note(machine.name, "is cut from ZooKeeper")
        machine.session.cut()
        self._world.later(self._duration(), self._reconnect(machine))

    def _expire(self, machine: Machine) -> None:
        if machine.session is None:
            return
        self._world.note(machine.name, "loses its session")
        machine.session.expire()

    def _stop_zookeeper(self, machine: Machine) -> None:
        world = self._world
        if world.zookeeper.is_down:
            return
        world.note("zookeeper", "goes down")
        world.zookeeper.stop()

        def restart() -> None:
            if world.zookeeper.is_down:
                world.zookeeper.restart()

        world.later(self._duration(), restart)

    def _restart_in_order(self, machine: Machine) -> None:
        self._world.note(machine.name, "is stopped in order")
        machine.stop()
        self._world.later(self._duration(), machine.start)

    def _step_clock(self, machine: Machine) -> None:
        machine.clock.skew_ms = self._random.choice((-60_000, -500, 0, 500, 60_000))
        self._world.note(machine.name, f"has its clock set by {machine.clock.skew_ms} ms")

    def _elect_preferred(self, machine: Machine) -> None:
        self._world.note("admin", "elects preferred leaders")
        self._world.admin.elect_preferred()

    def _reassign(self, machine: Machine) -> None:
        partition = self._random.choice(self._world.partitions)
        nodes = range(1, self._world.scenario.nodes + 1)
        replicas = self._random.sample(nodes, self._world.scenario.replication_factor)
        wanted = None if self._random.random() < 0.2 else replicas
        self._world.note("admin", f"moves {partition} to {wanted}")
        self._world.admin.reassign(partition, wanted)
