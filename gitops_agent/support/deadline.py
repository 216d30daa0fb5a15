"""A time limit on what blocks: the block goes on until what it waits for is cut."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deadline(seconds: float, cut: Callable[[], None]) -> Iterator[threading.Event]:
    """Call ``cut`` from a thread of its own unless the block ends in time; the event says that it was called."""
    late = threading.Event()

    def end() -> None:
        late.set()
        cut()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()
