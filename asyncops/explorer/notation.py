"""Event programs as text, for litmus tests and for reading what a generator found.

::

    initial lock 1
    core 0
      enter k x0[0:4] / s
      start x0[0:4] -> y1[0:4] send s:4 recv r:4
      wait s 4
      exit k x0[0:4] / s
    core 1
      wait r 4
      read y1[0:8:2]
    barrier 0:0 1:0

Names are words without spaces. A box is a buffer with a Python slice per dimension, or the buffer alone; a
trailing ``?`` says that it is only a superset of what is touched. ``send`` counts when the source has been
read, ``recv`` when the destination has been written; ``add`` accumulates; ``_`` is no source or no
destination. ``test`` is a wait that takes nothing off. After ``enter``, ``exit``, ``allocate`` and ``free``
comes what it is, the memory, and behind a slash the semaphores. A barrier lists core:event pairs. ``#``
begins a comment. Sites, names and kinds of copies are not written.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from asyncops.checker.events import Access, Box, Copy, Core, Event, Mark, Point, Program, Signal, Start, Wait
from stateful.errors import InvalidArgumentError

_BOX = re.compile(r"(?P<buffer>[^\[\]?]+)(?:\[(?P<dims>[\d:,]+)\])?(?P<inexact>\?)?")
_FORMS = {
    "core": "core NUMBER [device NUMBER]",
    "initial": "initial SEMAPHORE COUNT",
    "barrier": "barrier CORE:EVENT ...",
    "start": "start BOX -> BOX [send SEMAPHORE:AMOUNT] [recv SEMAPHORE:AMOUNT] [add]",
    "wait": "wait SEMAPHORE AMOUNT",
    "test": "test SEMAPHORE AMOUNT",
    "signal": "signal SEMAPHORE AMOUNT",
    "read": "read BOX",
    "write": "write BOX",
    "enter": "enter WHAT [BOX ...] [/ SEMAPHORE ...]",
    "exit": "exit WHAT [BOX ...] [/ SEMAPHORE ...]",
    "allocate": "allocate WHAT [BOX ...] [/ SEMAPHORE ...]",
    "free": "free WHAT [BOX ...] [/ SEMAPHORE ...]",
}


def format_program(program: Program) -> str:
    """``program`` in the notation; :func:`parse_program` reads it back if all identities are words."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    for semaphore, count in program.initial.items():
        yield f"initial {semaphore} {count}"
    for c, core in enumerate(program.cores):
        yield f"core {c}" if core.device == c else f"core {c} device {core.device}"
        yield from (f"  {format_event(event)}" for event in core.events)
    for group in program.barriers:
        yield "barrier " + " ".join(f"{c}:{i}" for c, i in group)


def format_schedule(program: Program, schedule: Iterable[Point]) -> str:
    """The steps of a schedule in the notation, one a line; of a copy's steps the later ones name the half."""
    return "".join(f"core {point.core}: {_format_step(program, point)}\n" for point in schedule)


def _format_step(program: Program, point: Point) -> str:
    event = format_event(program.cores[point.core].events[point.index])
    return f"{point.half.value} of {event}" if point.half else event


def format_event(event: Event) -> str:
    """One event in the notation."""
    match event:
        case Access(box, write):
            return f"{'write' if write else 'read'} {format_box(box)}"
        case Signal(semaphore, amount):
            return f"signal {semaphore} {amount}"
        case Wait(semaphore, amount, decrement):
            return f"{'wait' if decrement else 'test'} {semaphore} {amount}"
        case Start(copy):
            return f"start {_format_copy(copy)}"
        case Mark(kind, what, memory, semaphores):
            words = [kind, str(what), *map(format_box, memory)]
            return " ".join([*words, "/", *map(str, semaphores)] if semaphores else words)


def _format_copy(copy: Copy) -> str:
    words = [format_box(copy.source), "->", format_box(copy.destination)]
    if copy.source_semaphore is not None:
        words.append(f"send {copy.source_semaphore}:{copy.source_amount}")
    if copy.destination_semaphore is not None:
        words.append(f"recv {copy.destination_semaphore}:{copy.destination_amount}")
    return " ".join([*words, "add"] if copy.accumulate else words)


def format_box(box: Box | None) -> str:
    """A box in the notation, such as ``x[0:4]``."""
    if box is None:
        return "_"
    dims = ",".join(_format_dim(*dim) for dim in box.dims)
    return f"{box.buffer}{f'[{dims}]' if dims else ''}{'' if box.exact else '?'}"


def _format_dim(start: int, size: int, step: int) -> str:
    stop = start + (size - 1) * step + 1 if size else start
    return f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}"


def parse_program(text: str) -> Program:
    """The program that ``text`` writes down.

    Raises:
      InvalidArgumentError: a line is not in the notation; the message shows the line and the form it should
        have.
    """
    cores: list[tuple[int, list[Event]]] = []
    initial: dict[Hashable, int] = {}
    barriers: list[tuple[tuple[int, int], ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        try:
            match words:
                case []:
                    pass
                case ["core", index, *device]:
                    cores.append((_parse_core(index, device, len(cores)), []))
                case ["initial", semaphore, count]:
                    initial[semaphore] = int(count)
                case ["barrier", *points]:
                    barriers.append(tuple(map(_parse_point, points)))
                case _:
                    cores[-1][1].append(_parse_event(words))
        except (ValueError, IndexError) as error:
            raise _refused(number, line, words, error) from None
    return Program(tuple(Core(device, tuple(events)) for device, events in cores), tuple(barriers), initial)


def _refused(number: int, line: str, words: Sequence[str], error: Exception) -> InvalidArgumentError:
    form = _FORMS.get(words[0])
    if form is None:
        cure = f"a line begins with one of {', '.join(_FORMS)}"
    elif isinstance(error, IndexError):
        cure = "write 'core 0' before the first event"
    else:
        cure = f"the form is {form!r}"
    return InvalidArgumentError(f"text: line {number}, {line.strip()!r}: {cure}")


def _parse_core(index: str, device: Sequence[str], expected: int) -> int:
    if int(index) != expected:
        raise ValueError(index)
    match device:
        case []:
            return expected
        case ["device", number]:
            return int(number)
        case _:
            raise ValueError(device)


def _parse_point(word: str) -> tuple[int, int]:
    core, index = word.split(":")
    return int(core), int(index)


def _parse_event(words: Sequence[str]) -> Event:
    match words:
        case ["read" | "write" as verb, box]:
            return Access(_parse_box(box), verb == "write")
        case ["signal", semaphore, amount]:
            return Signal(semaphore, int(amount))
        case ["wait" | "test" as verb, semaphore, amount]:
            return Wait(semaphore, int(amount), verb == "wait")
        case ["start", source, "->", destination, *rest]:
            return Start(_parse_copy(source, destination, rest))
        case ["enter" | "exit" | "allocate" | "free" as kind, what, *rest]:
            memory, semaphores = rest, []
            if "/" in rest:
                memory, semaphores = rest[: rest.index("/")], rest[rest.index("/") + 1 :]
            return Mark(kind, what, tuple(map(_parse_box, memory)), tuple(semaphores))
        case _:
            raise ValueError(words)


def _parse_copy(source: str, destination: str, rest: Sequence[str]) -> Copy:
    semaphores: dict[str, tuple[str | None, int]] = {"send": (None, 0), "recv": (None, 0)}
    words, add = list(rest), False
    while words:
        match words.pop(0):
            case "send" | "recv" as half if words:
                semaphore, amount = words.pop(0).rsplit(":", 1)
                semaphores[half] = semaphore, int(amount)
            case "add":
                add = True
            case word:
                raise ValueError(word)
    (send, send_amount), (recv, recv_amount) = semaphores["send"], semaphores["recv"]
    return Copy(_parse_end(source), _parse_end(destination), send, recv, send_amount, recv_amount, add)


def _parse_end(word: str) -> Box | None:
    return None if word == "_" else _parse_box(word)


def _parse_box(word: str) -> Box:
    found = _BOX.fullmatch(word)
    if found is None:
        raise ValueError(word)
    dims = found["dims"].split(",") if found["dims"] else ()
    return Box(found["buffer"], tuple(map(_parse_dim, dims)), exact=not found["inexact"])


def _parse_dim(text: str) -> tuple[int, int, int]:
    start, stop, *steps = map(int, text.split(":"))
    (step,) = steps or [1]
    return start, len(range(start, stop, step)), step
