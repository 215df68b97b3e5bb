"""Exact exploration of small event programs; see :func:`explore`."""

from asyncops.explorer.exploration import explore as explore
