"""The rules: one module each, its documentation inside. ``ALL`` holds them in the order of their codes.

A rule has ``CODE``, ``NAME``, ``SEVERITY`` and ``find(analysis)``, which yields
:class:`~asyncops.checker.analysis.Finding` values.
"""

from asyncops.checker.rules import (
    barrier_reentry,
    deadlock,
    double_wait,
    exit_before_arrival,
    input_block_written,
    lost_revisit,
    missing_entry_barrier,
    out_of_bounds,
    overlapping_copies,
    parallel_grid_race,
    read_before_arrival,
    remote_overrun,
    scope_escape,
    semaphore_not_drained,
    semaphore_type,
    shared_semaphore,
    source_overwritten,
    stale_prefetch,
    store_to_inflight,
    unwaited_dma,
    wait_size_mismatch,
    wait_without_start,
    wrong_semaphore,
)

ALL = (
    unwaited_dma,
    double_wait,
    wait_without_start,
    wait_size_mismatch,
    wrong_semaphore,
    read_before_arrival,
    source_overwritten,
    store_to_inflight,
    overlapping_copies,
    scope_escape,
    stale_prefetch,
    parallel_grid_race,
    lost_revisit,
    input_block_written,
    semaphore_not_drained,
    shared_semaphore,
    deadlock,
    semaphore_type,
    out_of_bounds,
    missing_entry_barrier,
    remote_overrun,
    exit_before_arrival,
    barrier_reentry,
)

__all__ = ["ALL"]
