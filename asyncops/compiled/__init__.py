"""Compiled programs: what XLA made of asynchronous operations, and whether it is still what was written."""

from asyncops.compiled.compiling import compile_for as compile_for
