"""Runs asyncio on a clock that jumps to the next timer, so that minutes of a cluster take milliseconds.

Laws: the only file that touches asyncio's private hooks; time moves only here; a thread, a real socket
or a child process started on this loop raises, because it would bring back real time; when nothing is
scheduled any more, waiting is a deadlock and is reported as one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from llmgw.sim.network import SimNetwork, current_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


# A killed role's `finally` may wait for others that are gone; it is cancelled again, then left.
_FINISH_ATTEMPTS = 20
_FINISH_PATIENCE_S = 60.0


class NotSimulated(RuntimeError):
    """Code under simulation reached for something real; the text names it."""


class Deadlock(RuntimeError):
    """Every task waits and no timer is set: nothing can ever happen again."""


class _JumpingSelector:
    """Stands where the loop expects a selector; instead of waiting it moves the clock."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("all tasks wait and no timer is set")
        if timeout > 0:
            self._advance(timeout)
        return []

    def close(self) -> None:
        """Nothing is held."""


class SimFuture(asyncio.Future[T]):
    """A future whose place in a set does not depend on where it lies in memory."""

    serial = 0

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[T]):
    """The same for a task; it knows the process it was started in."""

    def __init__(self, coro: Any, *, serial: int, process: str, **kw: Any) -> None:
        self.serial = serial  # before the task registers itself in a set
        self.process = process
        super().__init__(coro, **kw)

    def __hash__(self) -> int:
        return self.serial


class SimLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time over an in-memory network."""

    def __init__(self, network: SimNetwork, start: float = 0.0) -> None:
        super().__init__()
        self._now = start
        self._clock_resolution = 1e-9
        self._selector = _JumpingSelector(self._advance)
        self.network = network
        self.unhandled: list[str] = []
        self._serials = 0
        self._running_tasks: set[SimTask[Any]] = set()
        self._of_the_dead: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_unhandled)
        network.attach(self)

    # The private surface of BaseEventLoop that a loop must supply (Python 3.11-3.14).

    def _process_events(self, event_list: list[Any]) -> None:
        """No file descriptors, so no events."""

    def _write_to_self(self) -> None:
        """Nothing sleeps, so nothing must be woken."""

    def _advance(self, seconds: float) -> None:
        self._now += seconds

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    # A killed process never takes another step, not even a `finally`: its callbacks are dropped.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run soon, unless the process of this context is dead by then."""
        context = context if context is not None else copy_context()
        process = context.get(current_process, "")
        return super().call_soon(self._if_alive, process, callback, args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run at a time, unless the process of this context is dead by then."""
        context = context if context is not None else copy_context()
        process = context.get(current_process, "")
        return super().call_at(when, self._if_alive, process, callback, args, context=context)

    def _if_alive(self, process: str, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if process in self.network.dead:
            # Kept until the end of the simulation: a task whose step is lost could not even be cancelled.
            self._of_the_dead.append((callback, args))
        else:
            callback(*args)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **kw: Any
    ) -> SimTask[Any]:
        process = current_process.get() if context is None else context.get(current_process, "")
        self._serials += 1
        task: SimTask[Any] = SimTask(
            coro, serial=self._serials, process=process, loop=loop, context=context, **kw
        )
        self._running_tasks.add(task)  # kept: a collected coroutine would run its `finally` after the kill
        task.add_done_callback(self._running_tasks.discard)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        """A future that orders the same in every run."""
        future: SimFuture[Any] = SimFuture(loop=self)
        self._serials += 1
        future.serial = self._serials
        return future

    def _note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unhandled.append(f"{context['message']}: {error!r}" if error else str(context["message"]))

    def tasks_of(self, process: str) -> list[SimTask[Any]]:
        """Tasks of a process that have not ended, oldest first; the running one is not among them."""
        current = asyncio.current_task(self)
        tasks = [task for task in self._running_tasks if task.process == process and task is not current]
        return sorted(tasks, key=lambda task: task.serial)

    def pending_timers(self) -> int:
        """Timers set and not cancelled; for reports of a simulation that does not end."""
        timers: list[asyncio.TimerHandle] = self.__dict__["_scheduled"]
        return sum(not timer.cancelled() for timer in timers)

    # Networking

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **kw: Any
    ) -> Any:
        """A connection over the simulated network. Raises `OSError` like the real one."""
        _refuse_sockets("create_connection", kw)
        return await self.network.connect(protocol_factory, f"{host}:{port}")

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **kw: Any
    ) -> Any:
        """A listener on the simulated network."""
        _refuse_sockets("create_server", kw)
        return self.network.listen(protocol_factory, host, port or 0)

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **kw: Any) -> Any:
        """A connection to a path on the same simulated host."""
        _refuse_sockets("create_unix_connection", kw)
        return await self.network.connect(protocol_factory, f"unix:{path}")

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **kw: Any) -> Any:
        """A listener on a path of the simulated host."""
        _refuse_sockets("create_unix_server", kw)
        return self.network.listen_unix(protocol_factory, str(path))

    # Everything real

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        """Threads bring real time back."""
        raise NotSimulated(f"run_in_executor({getattr(func, '__qualname__', func)})")

    async def getaddrinfo(self, host: Any, port: Any, **kw: Any) -> NoReturn:
        """Names are not looked up here; addresses are given."""
        raise NotSimulated(f"getaddrinfo({host})")

    async def subprocess_exec(self, *args: Any, **kw: Any) -> NoReturn:
        """Processes are simulated behind `ports.Processes`."""
        raise NotSimulated(f"subprocess {args[1:3]}")

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], Any], *args: *Ts) -> NoReturn:
        """Signals belong to real processes."""
        raise NotSimulated("add_signal_handler")

    def run_for(self, awaitable: Awaitable[T], limit_s: float) -> T:
        """Run until `awaitable` is done. Raises `TimeoutError` after `limit_s` virtual seconds."""

        async def bounded() -> T:
            async with asyncio.timeout(limit_s):
                return await awaitable

        return self.run_until_complete(bounded())

    def release_the_dead(self) -> None:
        """The simulation is over: killed processes run again, so that their tasks can be cancelled."""
        self.network.dead.clear()
        self.network.closed = True
        for callback, args in self._of_the_dead:
            self.call_soon(callback, *args)
        self._of_the_dead.clear()

    def finish(self) -> int:
        """Cancel what still runs, killed processes included, and close; how many tasks there were."""
        self.release_the_dead()
        tasks = asyncio.all_tasks(self)
        for _ in range(_FINISH_ATTEMPTS):
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if not left:
                break
            self.run_until_complete(asyncio.wait(left, timeout=_FINISH_PATIENCE_S))
        self.close()
        return len(tasks)


def _refuse_sockets(what: str, options: dict[str, Any]) -> None:
    if options.get("sock") is not None:
        raise NotSimulated(f"{what} with a real socket")
    if options.get("ssl") is not None:
        raise NotSimulated(f"{what} with TLS: identity is transport information here")
