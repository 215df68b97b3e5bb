"""Timelines of runs, as pictures and as traces for profilers' viewers. No JAX."""
