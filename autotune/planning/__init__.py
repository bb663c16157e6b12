"""Planning without a GPU: which configurations fit a budget, which limit binds, and what would help."""
