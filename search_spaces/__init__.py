"""The shipped search spaces, as YAML files beside this module."""
