"""CSV: from one line of text to values of a schema.

Spark's parser reads the first line of a text and passes over all others, so those are looked for beside it.
Quotes within quotes stand behind a backslash for it, unless `escape` says otherwise; where none does in a
text, they are doubled, as RFC 4180 has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from mirrormaker.pipelines.trying import tried

_SHOWN = 60
_QUOTE, _ESCAPE = '"', "\\"
"""Spark's, where options do not say others."""


def parse_csv(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """A struct of the columns of `schema`; null for more columns, or longer ones, than the parser takes."""
    columns = ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema)
    said = {name.lower(): value for name, value in options.items()}
    quote = said.get("quote", _QUOTE)
    parsed = f.from_csv(text, columns, dict(options))
    if "escape" not in said and quote:
        doubled = f.from_csv(text, columns, {**options, "escape": quote})
        parsed = f.when(_has_doubled(text, quote), doubled).otherwise(parsed)
    return tried(parsed)


def _has_doubled(text: Column, quote: str) -> Column:
    """Whether quotes are doubled within fields, and none is behind a backslash: what is in quotes has more in
    quotes right behind it then.
    """
    mark = re.escape(quote)
    shortened = f.regexp_replace(text, f"{mark}[^{mark}]*+{mark}", rf"\{quote}")
    return text.contains(quote * 2) & shortened.contains(quote * 2) & ~text.contains(f"{_ESCAPE}{quote}")


def quoted(name: str) -> str:
    """A name of a column as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def line_problem(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """Why a text is not one line of fields; null where it is. Ends of lines within quotes are none."""
    said = {name.lower(): value for name, value in options.items()}
    quote, escape = said.get("quote", _QUOTE), said.get("escape", _ESCAPE)
    outside = text
    if quote:
        # Two steps of which neither repeats a choice: Java's would need a frame of its stack for each letter.
        mark, escaped = re.escape(quote), re.escape(escape)
        pairs = f"{mark}{mark}" if escape in ("", quote) else f"{escaped}[{mark}{escaped}]|{mark}{mark}"
        outside = f.regexp_replace(f.regexp_replace(outside, pairs, ""), f"{mark}[^{mark}]*+{mark}", "")
    many = f.when(text.contains("\n") & outside.contains("\n"), f.lit("more than one line"))
    is_empty = (text == "") & f.lit(len(schema) > 1)
    told = f.when(is_empty, f.lit("an empty line")).otherwise(many)
    comment = said.get("comment", "")
    return f.when(text.startswith(comment), f.lit("a comment")).otherwise(told) if comment else told


def csv_mismatches(text: Column, parsed: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """Which fields are there, and of another type; null when none is."""
    texts = StructType([StructField(each.name, StringType()) for each in schema])
    said = parse_csv(text, texts, options)
    found = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        shown = f.substring(said[field.name], 1, _SHOWN)
        told = f.concat(f.lit(f"field {field.name}: '"), shown, f.lit(f"' is no {kind}"))
        found.append(f.when(said[field.name].isNotNull() & parsed[field.name].isNull(), told))
    joined = f.concat_ws("; ", *found)
    return f.when(joined != "", joined)
