"""HTML pages from the templates of this package. jinja2 escapes every text; a name that a template misspells is an error."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_environment = Environment(
    loader=PackageLoader("unpatch.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
#: Where a long identifier may be broken: after what parts its words.
_environment.filters["parts"] = lambda text: re.split(r"(?<=[_.,:/\[\-])(?=\w)", text)


def page(template: str, **values: Any) -> str:
    """The page that the file `template` makes of `values`."""
    return _environment.get_template(template).render(**values)
