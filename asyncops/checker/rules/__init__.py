"""The rules: one module each, its documentation inside, in the order of their codes.

A rule has ``CODE``, ``NAME`` and ``SEVERITY``. Those of ``ALL`` have ``find(analysis)``, which looks at one run; those
of ``PROGRAM`` have ``find_in_program(facts)``, which looks at the program around the kernels. Both yield
:class:`~asyncops.checker.analysis.Finding` values.
"""

from asyncops.checker.rules import (
    barrier_reentry,
    deadlock,
    defensive_copy,
    double_wait,
    effect_lost,
    exit_before_arrival,
    future_dropped,
    future_reused,
    inflight_copied,
    input_block_written,
    loop_carried_alias,
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
    source_lifetime,
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

PROGRAM = (
    future_dropped,
    future_reused,
    source_lifetime,
    inflight_copied,
    defensive_copy,
    effect_lost,
    loop_carried_alias,
)

__all__ = ["ALL", "PROGRAM"]
