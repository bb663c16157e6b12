"""Search: recorded tables of measured points, fitted coefficients, and samplers replayed on the tables."""
