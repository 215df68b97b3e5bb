"""The copies that ``pallas_call`` generates for its block windows, and the rules about them.

Per window, ``pl.Buffered(n)`` slots (two unless said otherwise). The fetch of step i+1 starts before the body of step i
where the block index changes, and is waited for before the body of i+1. The write-back of step i starts after its body
where the block index is about to change, and is waited for at the end of step i+1, the last at the end of the call
(JAX doc `pallas/tpu/pipelining`).

The copies appear as events where the kernel has asynchronous operations of its own that could meet them. What only
depends on which step sees which block (AO206 stale prefetch, AO208 lost revisit, AO209 written input) is decided here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncops.checker.blocks import block_axes
from asyncops.checker.events import Location, Site
from asyncops.checker.memory import Buffer
from asyncops.checker.recording import CopyDraft, Entry, Problem, SemaphoreKey
from stateful import terms
from stateful._jax import names
from stateful.types import Region, SemaphoreKind

DMA = SemaphoreKind.DMA


@dataclass(frozen=True, eq=False)
class Window:
    """One operand or result of a call: the caller's ``array``, and the buffers the kernel sees it through."""

    number: int
    is_input: bool
    spec: Any
    array: Buffer
    slots: tuple[Buffer, ...]
    semaphore: Buffer | None
    given: Any = None  # what the kernel gets in place of the whole array: a view of it, or a number

    @property
    def pipelined(self) -> bool:
        """True where blocks are copied in or out."""
        return bool(self.spec.pipelined)

    def region(self, index: Sequence[Any]) -> Region:
        """The part of the array that a block covers; the overhang of the last block is cut off where it is known."""
        ranges: list[tuple[Any, Any, int]] = []
        for dim, i, extent in zip(self.spec.block, index, self.array.type.shape):
            start = (
                i if dim.kind in ("element", "squeezed", "indirect", "bounded") else terms.scale(i, dim.size)
            )
            size = min(dim.size, extent - start) if type(start) is int and start >= 0 else dim.size
            ranges.append((start, max(size, 0), 1))
        return Region(self.array, self.array.type.shape, tuple(ranges))

    @property
    def location(self) -> Location | None:
        """Where the user wrote the index map."""
        if self.spec.index_map is None:
            return None
        found = names.function_location(self.spec.index_map.jaxpr)
        return Location(*found) if found else None


def slot_count(window: Any) -> int:
    """How many buffers a window has."""
    count = window.buffer_count
    return max(1, count if isinstance(count, int) else max(count))


@dataclass(frozen=True)
class Visit:
    """A stay of an output block: which steps, what the body did with it."""

    index: tuple[Any, ...]
    first: int
    last: int
    is_return: bool
    stored: bool = False
    complete: bool = False
    written_back: int | None = None  # the step at whose end the write-back is complete


@dataclass(frozen=True)
class WindowState:
    """Where a window stands. ``fetched_at`` is the step before whose body the fetch of the current block started."""

    index: tuple[Any, ...] | None = None
    slot: int = 0
    following: tuple[Any, ...] | None = None
    fetched_at: int = 0
    pending_fetch: bool = False
    next_fetched_at: int = 0
    pending_write: int | None = None
    stored_input: Any = None
    visits: tuple[Visit, ...] = ()


def _put(state: Any, number: int, window: WindowState) -> None:
    state.windows = (*state.windows[:number], window, *state.windows[number + 1 :])


class Flow:
    """Runs grid steps with the block pipeline around each."""

    def __init__(self, run: Any, call: Any, arguments: list[Any], is_symbolic: bool = False):
        self.run, self.call, self.arguments = run, call, arguments
        # On symbolic steps the visits of a block cannot be listed; see blocks.py for who decides about them.
        self.is_symbolic = is_symbolic
        self.first_window = call.form.constants + call.form.scalar_prefetch
        self.by_buffer = {b: w for w in call.windows for b in w.slots if w.pipelined}
        self.reported: set[Any] = set()
        self.block_visits: dict[Window, list[tuple[Any, Any, Site]]] = {}
        self.changed_scalar: Site | None = None  # where a body last wrote what index maps may read

    # -- one step --

    def run_step(
        self, state: Any, number: int, step: Sequence[Any], following: Sequence[Any] | None
    ) -> list[Any]:
        """Fetches, body, write-backs of one grid step."""
        for w in self.call.windows:
            if w.pipelined:
                self._arrive(w, state, number, step, following)
        arguments = list(self.arguments)
        for w in self.call.windows:
            buffer = w.slots[state.windows[w.number].slot] if w.pipelined else w.slots[0]
            arguments[self.first_window + w.number] = buffer.whole() if w.given is None else w.given
        paths = self.run.run_body(self.call, arguments, state)
        for path in paths:
            for w in self.call.windows:
                if w.pipelined:
                    self._depart(w, path, number)
        return paths

    def _index(self, w: Window, state: Any, step: Sequence[Any]) -> tuple[Any, ...]:
        return self.run.index_map(w.spec, step, self.arguments, self.call, state)

    def _arrive(self, w: Window, state: Any, number: int, step: Sequence[Any], following: Any) -> None:
        at = state.windows[w.number]
        if at.following is not None and self.changed_scalar is not None and block_axes(w.spec) is None:
            if self.is_symbolic:
                self.run.machine.needs_steps = True
            else:
                self._check_index(w, state, at.following, step, self.changed_scalar)
        index = at.following if at.following is not None else self._index(w, state, step)
        later = self._index(w, state, following) if following is not None else None
        changed = index != at.index
        if changed:
            slot = (at.slot + 1) % len(w.slots) if at.index is not None else 0
            fetched = at.next_fetched_at if at.pending_fetch else number
            at = dataclasses.replace(at, slot=slot, fetched_at=fetched, stored_input=None)
        if w.is_input:
            if changed and not at.pending_fetch:
                self._fetch(w, state, index, at.slot)
                at = dataclasses.replace(at, pending_fetch=True)
            if changed:
                self._await(w, state, at.slot)
                at = dataclasses.replace(at, pending_fetch=False)
            if later is not None and later != index and len(w.slots) > 1:
                self._fetch(w, state, later, (at.slot + 1) % len(w.slots))
                at = dataclasses.replace(at, pending_fetch=True, next_fetched_at=number)
        else:
            at = self._visit(w, at, index, number, changed, step, self._site(w, state))
        _put(state, w.number, dataclasses.replace(at, index=index, following=later))
        if w.is_input and not changed and at.stored_input is not None:
            self._report_written_input(w, state, at)

    def _visit(
        self, w: Window, at: WindowState, index: Any, number: int, changed: bool, coordinates: Any, site: Site
    ) -> WindowState:
        if self.is_symbolic:
            return dataclasses.replace(at, visits=(Visit((), 0, 0, False),)) if changed else at
        self.block_visits.setdefault(w, []).append((coordinates, index, site))
        if changed:
            returned = any(v.index == index for v in at.visits)
            return dataclasses.replace(at, visits=(*at.visits, Visit(index, number, number, returned)))
        return dataclasses.replace(
            at, visits=(*at.visits[:-1], dataclasses.replace(at.visits[-1], last=number))
        )

    def _depart(self, w: Window, state: Any, number: Any) -> None:
        if w.is_input:
            return
        at = state.windows[w.number]
        if at.pending_write is not None:
            self._await(w, state, at.pending_write)
            at = dataclasses.replace(at, pending_write=None)
        if at.following is None or at.following != at.index:
            self._write_back(w, state, at.index, at.slot)
            left = dataclasses.replace(at.visits[-1], written_back=number + 1)
            at = dataclasses.replace(at, pending_write=at.slot, visits=(*at.visits[:-1], left))
        _put(state, w.number, at)

    def finish(self, state: Any) -> None:
        """The last write-backs complete before the call ends."""
        for w in self.call.windows:
            at = state.windows[w.number]
            if at.pending_write is not None:
                self._await(w, state, at.pending_write)

    # -- the copies as events --

    def _site(self, w: Window, state: Any) -> Site:
        return Site(w.location or self.call.location, state.moment, str(w.slots[0]), self.call.stack)

    def _fetch(self, w: Window, state: Any, index: Sequence[Any], slot: int) -> None:
        if w.semaphore is not None:
            self._start(w, state, w.region(index), self._slot_region(w, slot), slot)

    def _write_back(self, w: Window, state: Any, index: Any, slot: int) -> None:
        if w.semaphore is not None:
            self._start(w, state, self._slot_region(w, slot), w.region(index), slot)

    def _slot_region(self, w: Window, slot: int) -> Region:
        return w.slots[slot].whole().region

    def _start(self, w: Window, state: Any, source: Region, destination: Region, slot: int) -> None:
        key = SemaphoreKey(w.semaphore, (slot,))  # type: ignore[arg-type]
        amount = w.slots[0].whole().nbytes
        site = self._site(w, state)
        draft = CopyDraft(source, destination, None, key, 0, amount, False, "pipeline", site)
        self.run.machine.pipeline_start(state, draft, site)

    def _await(self, w: Window, state: Any, slot: int) -> None:
        if w.semaphore is not None:
            key = SemaphoreKey(w.semaphore, (slot,))
            amount = w.slots[0].whole().nbytes
            self.run.machine.pipeline_wait(state, key, amount, self._site(w, state))

    # -- rules about blocks --

    def touched(self, state: Any, view: Any, write: bool, masked: bool, site: Site) -> None:
        """The body reads or writes a window."""
        w = self.by_buffer.get(view.root)
        if w is None:
            return
        if w.is_input:
            if write:
                at = state.windows[w.number]
                _put(state, w.number, dataclasses.replace(at, stored_input=site))
            else:
                self._check_stale(w, state, site)
            return
        at = state.windows[w.number]
        visit = at.visits[-1]
        whole = not masked and view.region.contains(view.root.whole().region) is True
        if visit.is_return and not visit.complete and not (write and whole):
            self._report_revisit(w, state, visit, write, site)
        if write:
            visit = dataclasses.replace(visit, stored=True, complete=visit.complete or whole)
            _put(state, w.number, dataclasses.replace(at, visits=(*at.visits[:-1], visit)))

    def _check_stale(self, w: Window, state: Any, site: Site) -> None:
        if self.is_symbolic:
            return
        at = state.windows[w.number]
        region = w.region(at.index)  # type: ignore[arg-type]
        for out in self.call.windows:
            if out.is_input or not out.pipelined or out.array is not w.array:
                continue
            for visit in state.windows[out.number].visits:
                fresh = visit.written_back is not None and visit.written_back < at.fetched_at
                if not visit.stored or visit.first >= state.step or fresh:
                    continue
                if out.region(visit.index).overlaps(region):
                    self._report_stale(w, out, visit, state, site)

    def _check_index(
        self, w: Window, state: Any, foreseen: tuple[Any, ...], step: Sequence[Any], stored: Site
    ) -> None:
        """The block of this step was chosen before the last body ran; is it still the one?"""
        now = self._index(w, state, step)
        differs = terms.logical_or(*(terms.ne(a, b) for a, b in zip(foreseen, now)))
        if differs is False or now != self._index(w, state, step):
            return  # an index that is a new unknown each time says nothing
        what = "fetched" if w.is_input else "chosen"
        message = (
            f"the block of {w.slots[0]} for {state.moment} was {what} before the body of the step before wrote a "
            f"scalar that its index map reads: block {_index_text(foreseen)} then, {_index_text(now)} now"
        )
        related = (("the index map", w.location), ("the kernel is called here", self.call.location))
        cure = "do not write what index maps read; copy the block by hand where its place is known too late"
        self._problem(
            state,
            ("AO206", w.number, "index"),
            Problem(
                "AO206", message, stored, cure, related,
                lambda model: terms.evaluate(differs, model) is True, differs,
            ),
        )  # fmt: skip

    def _problem(self, state: Any, key: Any, problem: Problem) -> None:
        if key not in self.reported:
            self.reported.add(key)
            self.run.machine.problem(state, problem)

    def _report_stale(self, w: Window, out: Window, visit: Visit, state: Any, site: Site) -> None:
        where = out.location or self.call.location
        message = (
            f"{w.slots[0]} is read at {state.moment}, but its block was fetched before step "
            f"{visit.first}'s result for the "
            f"same part of the array, stored through {out.slots[0]} (aliased to it), was written back"
        )
        related = (("the block is read here", site.location), ("the aliased output", self.call.location))
        region, written, fetched = (
            w.region(state.windows[w.number].index),
            out.region(visit.index),
            state.windows[w.number].fetched_at,
        )

        def is_stale(model: Any) -> bool:
            is_late = visit.written_back is None or visit.written_back >= fetched
            return is_late and visit.first < number and bool(written.overlaps(region))

        number = state.step
        cure = (
            "initialise the output from the input on the first visit and accumulate in the output, or keep the axis "
            "that revisits a block innermost"
        )
        self._problem(
            state,
            ("AO206", w.number),
            Problem("AO206", message, dataclasses.replace(site, location=where), cure, related, is_stale),
        )

    def _report_revisit(self, w: Window, state: Any, visit: Visit, write: bool, site: Site) -> None:
        what = "written in part" if write else "read"
        message = (
            f"block {_index_text(visit.index)} of {w.slots[0]} is visited again at {state.moment} "
            f"after it was left, and "
            f"{what}: what the earlier visit left there is not loaded back"
        )
        related = (("the block is touched here", site.location),)
        cure = "reorder the grid so that all visits of an output block are consecutive"
        where = dataclasses.replace(site, location=w.location or site.location)
        before, visits = visit.index, tuple(v.index for v in state.windows[w.number].visits[:-1])
        self._problem(
            state,
            ("AO208", w.number),
            Problem("AO208", message, where, cure, related, lambda model: before in visits),
        )

    def _report_written_input(self, w: Window, state: Any, at: WindowState) -> None:
        stored: Site = at.stored_input
        message = (
            f"input window {w.slots[0]} is written at {stored.moment}, and {state.moment} sees the same block "
            "without a new fetch"
        )
        same = str(stored.moment) != str(state.moment)
        cure = "copy the block to scratch before changing it, or write to an output"
        self._problem(
            state,
            ("AO209", w.number),
            Problem("AO209", message, stored, cure, test=lambda model: same),
        )


def _index_text(index: Sequence[Any]) -> str:
    return f"({', '.join(map(str, index))})"


__all__ = ["DMA", "Entry", "Flow", "Visit", "Window", "WindowState", "slot_count"]
