"""YAML with comments: sections of plain values, each under a line that says what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

# What only the user knows. Every trainer takes it as a text until it looks for the file or the model.
FILL_IN = "FILL_IN"


class _Indented(yaml.SafeDumper):
    """Lists are indented under their key, as the trainers' own examples have them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # PyYAML's other styles do not give all line breaks back: U+0085 comes back as a space.
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Indented.add_representer(str, _text)


def yaml_text(header: Iterable[str], sections: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """A YAML document.

    Args:
        header: comment lines at the top.
        sections: a comment and the keys under it, in this order; one without keys is left out.
    """
    parts = ["".join(f"# {line}\n" if line else "#\n" for line in header)]
    for comment, values in sections:
        if values:
            body = yaml.dump(dict(values), Dumper=_Indented, sort_keys=False, allow_unicode=True, width=100)
            parts.append(f"# {comment}\n{body}")
    return "\n".join(parts)
