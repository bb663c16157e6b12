"""`autotune doctor`: what this machine has, line by line, and what to do about what it lacks."""
