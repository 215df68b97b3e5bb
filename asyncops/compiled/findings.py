"""What the rules on compiled programs share: the facts they read, and the words they use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.compiled.dependences import Dependences
from asyncops.compiled.excerpts import Excerpt, Step
from asyncops.compiled.facts import CopyMade, Flight, Mark, ScopePath, Touch, Trace, times
from asyncops.compiled.hlo import Instruction, Module
from asyncops.compiled.operations import aliases, describe, is_copy, kernel_name
from asyncops.compiled.parts import reads_beside
from asyncops.compiled.sites import Sites
from asyncops.compiled.values import Buffer
from asyncops.compiled.windows import ran

_MAX_INNER = 10_000

Related = tuple[tuple[str, Location], ...]


@dataclass(frozen=True)
class Finding:
    """A diagnostic, and the start of the copy that it is about; several about one are one defect."""

    diagnostic: Diagnostic
    subject: Instruction | None


@dataclass
class Facts:
    """One followed module; ``origin`` is the same program before it was compiled, where it is known."""

    trace: Trace
    origin: Trace | None = None

    @property
    def module(self) -> Module:
        """The compiled module."""
        return self.trace.module

    @cached_property
    def sites(self) -> Sites:
        """Lines of the compiled module."""
        return Sites(self.trace.module)

    @cached_property
    def dependences(self) -> Dependences:
        """What instructions of the compiled module are computed from."""
        return Dependences(self.sites)

    @cached_property
    def flights(self) -> tuple[Flight, ...]:
        """The copies that Pallas kernels started: XLA does not know of them."""
        return tuple(f for f in self.trace.flights if not f.native)

    @cached_property
    def touches(self) -> dict[Flight, tuple[Touch, ...]]:
        """What goes wrong with the buffers of a copy in flight."""
        found: dict[Flight, list[Touch]] = {}
        for touch in self.trace.touches:
            if self._is_harmful(touch):
                found.setdefault(touch.flight, []).append(touch)
        return {flight: tuple(touches) for flight, touches in found.items()}

    def _is_harmful(self, touch: Touch) -> bool:
        """Copying a source only reads it; it does harm where the copy goes on in the source's place, and
        something else may get the original's memory while it is still being read."""
        if touch.role == "destination" and touch.access == "read" and self._reads_beside(touch):
            return False
        if touch.role == "destination" or touch.access == "write":
            return True
        return not self.lives(touch.flight, "source") and self.is_reused(touch.flight, "source")

    def _reads_beside(self, touch: Touch) -> bool:
        """Whether it reads another part of the array than the one that the copy writes, as of two slots."""
        flight = touch.flight
        between = self.trace.log[flight.step : touch.step] if flight.destination_part is not None else ()
        if flight.path != touch.path or any(entry.mark is Mark.ITERATION for entry in between):
            return False
        return reads_beside(touch, self.sites)

    def lives(self, flight: Flight, role: str) -> bool:
        """True where the buffer is used, or may not be reused, until that half of the copy is over."""
        buffer = flight.source if role == "source" else flight.destination
        if buffer is None or self.trace.is_kept(buffer):
            return True
        last = self.trace.last_use.get(buffer, -1)
        return all(last >= step for step in self._released(flight, role))

    def _released(self, flight: Flight, role: str) -> list[int]:
        key = flight.key_of(role)
        return flight.released.get(key, []) if key is not None else []

    def is_reused(self, flight: Flight, role: str) -> bool:
        """True where something that needs memory of the buffer's kind runs after its last use, before that half
        of the copy is over."""
        buffer = flight.source if role == "source" else flight.destination
        if buffer is None:
            return False
        last = self.trace.last_use.get(buffer, flight.step)
        final = max(self._released(flight, role), default=len(self.trace.log))
        later = ran(self.trace.log[last + 1 : final])
        return any(buffer.shape.space in self._allocates(i) for i in later)

    def _allocates(self, instruction: Instruction) -> set[int]:
        """The memory spaces in which an instruction puts arrays of its own."""
        shared = aliases(instruction, self.module)
        parts = {(i,): part for i, part in enumerate(instruction.shape.elements)} or {(): instruction.shape}
        own = [part for path, part in parts.items() if path not in shared]
        return {leaf.space for part in own for leaf in part.leaves() if leaf.size > 1}

    def excerpt(self, *steps: tuple[Instruction | None, str]) -> Excerpt:
        """A witness: instructions in schedule order, each with what it does."""
        known = [(i, does) for i, does in steps if i is not None]
        return Excerpt(self.module, tuple(Step(i, does, self.sites.innermost(i)) for i, does in known))

    def inner(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """What a fusion was fused from, fusions within it included."""
        if instruction.opcode != "fusion":
            return ()
        found: list[Instruction] = []
        names = list(instruction.callees)
        while names and len(found) < _MAX_INNER:
            computation = self.module.computations.get(names.pop())
            found += computation.instructions if computation is not None else ()
            names += (
                [n for i in computation.instructions if i.opcode == "fusion" for n in i.callees]
                if computation
                else []
            )
        return tuple(found)

    def users(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions that use a value, in its own computation."""
        home = self.sites.home(instruction)
        return home.users.get(instruction.name, ()) if home is not None else ()

    def ended_by(self, flight: Flight) -> Instruction | None:
        """The wait that ends it, the last where there are several."""
        return flight.endings[-1].instruction if flight.endings else None

    def starts_at(self, flight: Flight) -> Location | None:
        """The line that starts the copy, in the function that also waits for it."""
        done = self.ended_by(flight)
        return self.sites.towards(flight.start, done) if done else self.sites.innermost(flight.start)

    def around(self, flight: Flight, *, start: bool = True, done: bool = True) -> Related:
        """The lines where a copy starts and is waited for, and that of the kernel's own call."""
        places: list[tuple[str, Location | None]] = []
        end = self.ended_by(flight)
        if start:
            places.append(("the copy is started here", self.starts_at(flight)))
        if done and end is not None:
            places.append(("it is waited for here", self.sites.towards(end, flight.start)))
        places.append(("the kernel that starts it", self.sites.innermost(flight.start)))
        return related(*places)


def related(*places: tuple[str, Location | None]) -> Related:
    """Related lines without those that are not known, and without repeating one."""
    seen: dict[Location, str] = {}
    for label, location in places:
        if location is not None:
            seen.setdefault(location, label)
    return tuple((label, location) for location, label in seen.items())


def elsewhere(location: Location | None, places: Related) -> Related:
    """``places`` without the finding's own line."""
    return tuple((label, place) for label, place in places if place != location)


def finding(
    code: tuple[str, str, str],
    message: str,
    location: Location | None,
    places: Related,
    cure: str,
    flight: Flight,
    witness: Excerpt | None = None,
) -> Diagnostic:
    """A finding about ``flight``. The program itself confirms it, unless the kernel had to be guessed."""
    identifier, name, severity = code
    return Diagnostic(
        identifier,
        name,
        severity,
        message,
        location,
        elsewhere(location, places),
        witness=witness,
        confirmed=not flight.inferred,
        help=cure,
        kernel=kernel_name(flight.start),
    )


def where(path: ScopePath) -> str:
    """``" in the body of the loop %while.3, 8 times"``, ``" in the true branch of %conditional"``, or
    nothing."""
    scope = next((s for s in reversed(path) if s.kind != "call"), None)
    if scope is None:
        return ""
    if scope.kind == "branch":
        return f" in {scope.label} of {scope.instruction}"
    count = times(path)
    often = "in every iteration" if count is None else "once" if count == 1 else f"{count:,} times"
    return f" in the body of the loop {scope.instruction}, {often}"


def moved(copy: CopyMade | Touch) -> str:
    """``"copied"``, or ``"moved from VMEM to HBM"`` where the memory space changes."""
    result = copy.result
    operand = copy.operand if isinstance(copy, CopyMade) else _operand(copy)
    if result is None or operand is None or operand.shape.space == result.shape.space:
        return "copied"
    return f"moved from {operand.shape.place} to {result.shape.place}"


def _operand(touch: Touch) -> Buffer | None:
    return touch.flight.source if touch.role == "source" else touch.flight.destination


def name_of(instruction: Instruction) -> str:
    """``"kernel done (%done.3)"``: for people, and for finding it in the HLO."""
    what = describe(instruction)
    if is_copy(instruction) or instruction.name.startswith(what):
        return str(instruction)
    if what == f"kernel {instruction.name}":  # a kernel without a name of its own
        return f"kernel {instruction}"
    return f"{what} ({instruction})"
