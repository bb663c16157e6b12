"""Predicted memory against measured memory."""
