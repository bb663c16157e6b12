"""Points measured on one live engine beside the same points measured each in a fresh process."""
