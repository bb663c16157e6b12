"""Scripts that the rivals run."""
