"""Memory claims that people repeat: predicted for all, and measured under a cap on a GPU."""
