"""A public benchmark: labelled kernels, and how well the checker and other tools tell the wrong ones."""
