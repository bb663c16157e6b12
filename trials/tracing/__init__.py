"""Traces a trial on `meta` tensors: every allocation it would make on a GPU, without a GPU."""
