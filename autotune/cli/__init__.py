"""The command line: flags to requests, results to text and JSON. Commands are loaded when they are used."""
