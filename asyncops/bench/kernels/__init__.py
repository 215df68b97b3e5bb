"""The labelled kernels: one kind of defect a file, each wrong kernel with its clean twin."""
