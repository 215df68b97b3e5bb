"""A remote write can land in memory that its owner still uses.

What it does
------------
Reports a remote copy into a slot that the target device may still be reading, sending from, or filling.

Why it is bad
-------------
Nothing tells the sender that the slot is free: a device that runs ahead overwrites what its neighbour still
needs.

Example
-------
    for step in range(n - 1):
        rdma(src=buf.at[step % 2], dst=buf.at[(step + 1) % 2]).start()   # no capacity signal back to the sender

Cure
----
Let the owner signal a capacity semaphore of the sender when a slot is free, and wait for it before the copy
starts; or give every step a slot of its own.

Known limits
------------
Devices are followed for the whole program.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._conflicts import Words, from_races

CODE = "AO402"
NAME = "remote-overrun"
SEVERITY = "error"


_WORDS = Words(
    core="{copy} from device {sender} can write {region} of device {owner} while that device still uses it{moment}",
    copy="{other} from device {sender} can write {region} of device {owner} while {copy}{elder} still "
    "uses it{moment}",
    help="let the owner of {region} signal the sender when it is free, and let the sender wait for that signal before "
    "it starts the copy",
    label="the owner uses it here",
)


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races in which a neighbour's copy comes too early."""
    return from_races(analysis, CODE, _WORDS)
