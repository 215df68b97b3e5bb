"""Habits of kernel writers: each idiom weaves the events of one into a draft, mostly right when alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from asyncops.checker.events import Access, Box, Copy, Event, Mark, Signal, Start, Wait
from asyncops.explorer.drafting import Draft

SLOTS = 2
MAX_STEPS = 3


def plain_access(draft: Draft) -> None:
    """A core reads or writes something."""
    core = draft.core()
    draft.weave(core, [Access(draft.box(core), draft.flag())])


def local_copy(draft: Draft) -> None:
    """A copy, its wait, a use of what it brought."""
    core = draft.core()
    copy = _copy(draft, core, core, receive=draft.semaphore(core))
    draft.weave(core, [Start(copy), *_wait_written(draft, copy), *_uses(draft, copy)])


def two_sided_copy(draft: Draft) -> None:
    """A local copy that counts on two semaphores, perhaps the same, on one, or on none."""
    core = draft.core()
    send, receive = (None if draft.flag(4) else draft.semaphore(core) for _ in range(2))
    copy = _copy(draft, core, core, send, receive)
    draft.weave(
        core, [Start(copy), *_wait_read(draft, copy), *_wait_written(draft, copy), *_uses(draft, copy)]
    )


def copies_on_one_semaphore(draft: Draft) -> None:
    """Copies in flight on one semaphore, waited for one by one or all at once."""
    core = draft.core()
    semaphore = draft.semaphore(core)
    copies = [_copy(draft, core, core, receive=semaphore) for _ in draft.many(2, 3)]
    events: list[Event] = [Start(copy) for copy in copies]
    at_once = draft.flag()
    if at_once:
        events.append(Wait(semaphore, sum(copy.destination_amount for copy in copies)))
    for copy in copies:
        events += [*([] if at_once else _wait_written(draft, copy)), *_uses(draft, copy)]
    draft.weave(core, events)


def double_buffered_loop(draft: Draft) -> None:
    """While a step reads its slot, the copy into the other slot is in flight."""
    core, amount, slots = draft.core(), draft.amount(), draft.pick(("st", "s"))
    device = draft.device(core)
    events: list[Event] = []
    uses: list[Event] = []
    for step in draft.many(2, MAX_STEPS):
        slot = Box(f"x{device}", ((step % SLOTS, 1, 1),))
        semaphore = f"{slots[step % len(slots)]}{core}"
        source = Box(f"h{device}", ((step, 1, 1),))
        events += [Start(Copy(source, slot, None, semaphore, 0, amount)), *uses]
        uses = [Wait(semaphore, amount), Access(slot, False)]
    draft.weave(core, [*events, *uses])


def remote_copy(draft: Draft) -> None:
    """A copy to a neighbour; the sender waits for the reading, the neighbour for the writing."""
    sender = draft.core()
    receiver = draft.neighbour(sender)
    copy = _copy(draft, sender, receiver, draft.semaphore(sender), draft.semaphore(receiver))
    draft.weave(sender, [Start(copy), *_wait_read(draft, copy), *_reuse(draft, copy.source)])
    draft.weave(receiver, [*_wait_written(draft, copy), *_read(draft, copy.destination)])


def ring_step(draft: Draft) -> None:
    """Every core sends to the next and receives from the one before, on the same semaphores everywhere."""
    count = len(draft.cores)
    copies = [_copy(draft, c, (c + 1) % count, f"s{c}", f"t{(c + 1) % count}") for c in range(count)]
    for c, copy in enumerate(copies):
        came = copies[c - 1]
        waits = [*_wait_read(draft, copy), *_wait_written(draft, came)]
        draft.weave(c, [Start(copy), *waits, *_read(draft, came.destination)])


def remote_copies_with_credit(draft: Draft) -> None:
    """A sender fills one slot of a neighbour again and again, each time after the neighbour gave it back."""
    sender, amount = draft.core(), draft.amount()
    receiver = draft.neighbour(sender)
    slot = Box(f"x{draft.device(receiver)}", ((0, 1, 1),))
    credit, arrived = f"g{sender}", draft.semaphore(receiver)
    sends: list[Event] = []
    receives: list[Event] = []
    for step in draft.many(1, MAX_STEPS):
        if step:
            receives.append(Signal(credit, 1))
            sends.append(Wait(credit, 1))
        source = Box(f"h{draft.device(sender)}", ((step, 1, 1),))
        sends.append(Start(Copy(source, slot, None, arrived, 0, amount, kind="remote")))
        receives += [Wait(arrived, amount), Access(slot, False)]
    draft.weave(sender, sends)
    draft.weave(receiver, receives)


def handshake(draft: Draft) -> None:
    """A core does something, then tells a neighbour, which then does something."""
    core = draft.core()
    neighbour, semaphore = draft.neighbour(core), draft.semaphore(draft.core(), "gh")
    amount = draft.amount()
    box = draft.box(core)
    draft.weave(core, [*_read(draft, box), Signal(semaphore, amount)])
    draft.weave(neighbour, [Wait(semaphore, amount), Access(box, not draft.flag())])


def barrier(draft: Draft) -> None:
    """Every core signals every other and waits for as many, round after round on one semaphore each."""
    rounds = len(list(draft.many(1, 3)))
    for c in range(len(draft.cores)):
        events: list[Event] = []
        for _ in range(rounds):
            events += [Signal(f"g{other}", 1) for other in range(len(draft.cores)) if other != c]
            events += [Wait(f"g{c}", len(draft.cores) - 1), *_reuse(draft, draft.box(c))]
        draft.weave(c, events)


def lock(draft: Draft) -> None:
    """Two cores take turns by a semaphore that starts at one."""
    one = draft.core()
    draft.initial["lock"] = 1
    box = draft.box(one)
    for core in (one, draft.neighbour(one)):
        draft.weave(core, [Wait("lock", 1), Access(box, not draft.flag()), Signal("lock", 1)])


def competing_waits(draft: Draft) -> None:
    """Two cores take from one semaphore what a third, or one of them, brings."""
    one, bringer = draft.core(), draft.core()
    semaphore = draft.semaphore(one, "gh")
    amounts = [draft.amount(), draft.amount()]
    draft.weave(bringer, [Signal(semaphore, amount) for amount in amounts])
    for core, amount in zip((one, draft.neighbour(one)), amounts, strict=True):
        draft.weave(core, [Wait(semaphore, amount), Access(draft.box(one), draft.flag())])


def tested_semaphore(draft: Draft) -> None:
    """A copy whose arrival is seen by a test before its wait takes the count off."""
    core = draft.core()
    copy = _copy(draft, core, core, receive=draft.semaphore(core))
    test = Wait(copy.destination_semaphore, copy.destination_amount, decrement=False)
    draft.weave(core, [Start(copy), test, *_uses(draft, copy), *_wait_written(draft, copy)])


def scoped_copy(draft: Draft) -> None:
    """A copy into memory of a scope, which may come twice as in a loop; a neighbour may send into it, too."""
    core = draft.core()
    memory, semaphore = Box(f"z{core}"), f"u{core}"
    events: list[Event] = []
    for _ in draft.many(1, 2):
        allocate, free = (Mark(kind, "scope", (memory,), (semaphore,)) for kind in ("allocate", "free"))
        copy = replace(_copy(draft, core, core, receive=semaphore), destination=memory)
        events += [allocate, Start(copy), *_wait_written(draft, copy), *_read(draft, memory), free]
    if draft.flag(3):
        neighbour = draft.neighbour(core)
        copy = replace(_copy(draft, neighbour, core, receive=semaphore), destination=memory)
        draft.weave(neighbour, [Start(copy)])
        events[-1:] = [*_wait_written(draft, copy), *events[-1:]]
    draft.weave(core, events)


IDIOMS: tuple[Callable[[Draft], None], ...] = (
    plain_access,
    local_copy,
    two_sided_copy,
    copies_on_one_semaphore,
    double_buffered_loop,
    remote_copy,
    ring_step,
    remote_copies_with_credit,
    handshake,
    barrier,
    lock,
    competing_waits,
    tested_semaphore,
    scoped_copy,
)


def _copy(draft: Draft, core: int, target: int, send: str | None = None, receive: str | None = None) -> Copy:
    """A copy of a box of ``core`` to one of ``target``, never onto itself."""
    source = draft.box(core)
    destination = replace(draft.box(target), dims=source.dims)
    if source.buffer == destination.buffer:
        source = Box(f"h{draft.device(core)}", source.dims)
    amount = draft.amount()
    return Copy(
        source,
        destination,
        send,
        receive,
        amount if send else 0,
        amount if receive else 0,
        accumulate=draft.flag(8),
        kind="dma" if core == target else "remote",
    )


def _wait_read(draft: Draft, copy: Copy) -> list[Event]:
    return _wait(draft, copy.source_semaphore, copy.source_amount)


def _wait_written(draft: Draft, copy: Copy) -> list[Event]:
    return _wait(draft, copy.destination_semaphore, copy.destination_amount)


def _wait(draft: Draft, semaphore: Hashable | None, amount: int) -> list[Event]:
    """Waits that take off ``amount``, now and then in two parts."""
    if semaphore is None:
        return []
    if amount > 1 and draft.flag(3):
        return [Wait(semaphore, 1), Wait(semaphore, amount - 1)]
    return [Wait(semaphore, amount)]


def _read(draft: Draft, box: Box | None) -> list[Event]:
    """A read of ``box``, now and then a write."""
    return [] if box is None else [Access(box, draft.flag(4))]


def _reuse(draft: Draft, box: Box | None) -> list[Event]:
    """Now and then a write of ``box``."""
    return [Access(box, True)] if box is not None and draft.flag() else []


def _uses(draft: Draft, copy: Copy) -> list[Event]:
    """What comes after a copy: its destination is used, its source perhaps filled again."""
    return [*_read(draft, copy.destination), *_reuse(draft, copy.source)]
