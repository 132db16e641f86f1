"""Links of the documents: the file is there, and so is the heading."""

import re

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6}\s+(.*)")


def without_code(text):
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text):
    """What GitHub calls the headings of a document."""
    found = {}
    for line in re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M).splitlines():
        heading = HEADING.match(line)
        if heading:
            name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).strip().lower()).replace(" ", "-")
            count = found.get(name, 0)
            found[name] = count + 1
            yield name if count == 0 else f"{name}-{count}"


def broken(path, text, read):
    """Links of the document at `path` that lead nowhere. `read` gives a file's text, "" for a directory, None if there is none."""
    for found in LINK.finditer(without_code(text)):
        link = found.group(1) or found.group(2)
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        target, _, anchor = link.partition("#")
        content = read(path.parent / target) if target else text
        if content is None:
            yield f"{link}: there is no such file"
        elif anchor and target.endswith((".md", "")) and anchor not in set(anchors(content)):
            yield f"{link}: no heading is called that"
