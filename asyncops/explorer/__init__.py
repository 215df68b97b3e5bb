"""Exact exploration of small event programs, and what is made with it: see :func:`explore`.

The checker decides by an order of events; this package decides by trying every schedule, and shares nothing
with the checker but the events. ``python -m asyncops.explorer`` compares the two on generated programs.
"""

from asyncops.explorer.exploration import explore as explore
from asyncops.explorer.findings import Deadlock as Deadlock
from asyncops.explorer.findings import Exploration as Exploration
from asyncops.explorer.findings import Leak as Leak
from asyncops.explorer.findings import Race as Race
from asyncops.explorer.findings import Stray as Stray
from asyncops.explorer.findings import Unfinished as Unfinished
from asyncops.explorer.generating import random_program as random_program
from asyncops.explorer.notation import format_program as format_program
from asyncops.explorer.notation import format_schedule as format_schedule
from asyncops.explorer.notation import parse_program as parse_program
from asyncops.explorer.precedence import ExactOrder as ExactOrder
from asyncops.explorer.precedence import exact_order as exact_order
