"""autotune: the fastest configuration that trains a model inside a GPU memory budget, proven by running it."""

__version__ = "0.1.0"
