"""Compiled programs: what XLA made of asynchronous operations, and whether it is still what was written."""

from asyncops.compiled.checking import CompiledReport as CompiledReport
from asyncops.compiled.checking import check_compiled as check_compiled
from asyncops.compiled.compiling import compile_for as compile_for
from asyncops.compiled.schedule import ScheduleReport as ScheduleReport
