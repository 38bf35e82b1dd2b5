"""A document of figures, as Markdown and as a page of the site: a title, a lead, and sections with or without a table."""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NOTE = "Written by ./dev validate --write."
OTHER = re.compile(r"docs/(accuracy|comparison|time)\.md")
PAGES = {"accuracy", "comparison"}  # of the site; the rest is for those who read the repository


@dataclass
class Section:
    title: str
    text: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    worded: bool = False  # cells are words, not figures


@dataclass
class Document:
    title: str
    description: str  # of the page, for those who search
    claim: str  # what matters most
    lead: str
    sections: list[Section]
    picture: tuple[str, str] | None = None  # as Markdown, as HTML


def linked(text: str) -> str:
    return OTHER.sub(r"[docs/\1.md](\1.md)", text)


def paragraph(text: str) -> str:
    link = OTHER.sub(lambda m: f'<a href="./{m[1]}.html">{m[1]}</a>' if m[1] in PAGES else m[0], html.escape(text))
    return f"<p>{link}</p>"


def markdown(document: Document) -> str:
    lines = [f"# {document.title}", "", f"**{document.claim}**", "", linked(document.lead), ""]
    if document.picture:
        lines += [document.picture[0], ""]
    for section in document.sections:
        lines += [f"## {section.title}", "", linked(section.text), ""]
        if section.rows:
            lines += [f"| {' | '.join(section.head)} |", "| --- |" + (" --- |" if section.worded else " ---: |") * (len(section.head) - 1)]
            lines += [f"| {' | '.join(row)} |" for row in section.rows] + [""]
    return "\n".join([*lines, NOTE, ""])


def page(document: Document) -> str:
    body = [f'<p class="claim">{html.escape(document.claim)}</p>', paragraph(document.lead)]
    if document.picture:
        body.append(document.picture[1])
    for section in document.sections:
        body += [f"<h2>{html.escape(section.title)}</h2>", paragraph(section.text)]
        if section.rows:
            cells = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in section.head)
            table = "".join(
                f'<tr><th scope="row">{html.escape(row[0])}</th>' + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:]) + "</tr>"
                for row in section.rows
            )
            words = ' class="words"' if section.worded else ""
            body.append(f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(section.title)}">')
            body.append(f"<table{words}><thead><tr>{cells}</tr></thead><tbody>{table}</tbody></table></div>")
    inner = "\n      ".join(body)
    return f"""<!doctype html>
<!-- {NOTE} -->
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta
      http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <meta name="description" content="{html.escape(document.description)}" />
    <title>{html.escape(document.title)} – oometer</title>
    <link rel="icon" href="data:," />
    <link rel="stylesheet" href="./src/styles/page.css" />
    <link rel="stylesheet" href="./src/styles/method.css" />
    <link rel="stylesheet" href="./src/styles/accuracy.css" />
  </head>
  <body>
    <header><a href="./index.html">oometer</a></header>
    <main>
      <h1>{html.escape(document.title)}</h1>
      {inner}
    </main>
  </body>
</html>
"""


def write(usage: str | None, files: Callable[[Path], dict[Path, str]]) -> int:
    """Writes what `files` makes with the command, or with --check says by the exit status whether that stands there already."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oometer", type=Path, default=Path(__file__).resolve().parents[1] / "build" / "native" / "oometer")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    made = files(arguments.oometer)
    if arguments.check:
        return int(any(not file.exists() or file.read_text() != text for file, text in made.items()))
    for file, text in made.items():
        file.write_text(text)
    return 0
