"""autotune: the fastest configuration that trains a model inside a GPU memory budget, proven by a run."""

__version__ = "0.1.0"
