"""The house rules that a program can check. Each gives a number for a file: how far the file is from the rule."""

import re

FILE_LINES_MAX = 600
# A function fits a screen.
FUNCTION_LINES_MAX = 60
COMMENT_COLUMNS_MAX = 100
# The first page is read by people who do not know yet whether they want a second one.
README_WORDS_MAX = 600

COMMENT = {".rs": r"\s*(?://[/!]?)(.*)", ".c": r"\s*(?://|/?\*+)(.*)", ".h": r"\s*(?://|/?\*+)(.*)", ".sh": r"\s*#(?!!)(.*)", ".py": r"\s*#(?!!)(.*)"}
CODE = (".rs", ".sh", ".py", ".c", ".h")

FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([a-z: ]+\))? )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)")
UNSAFE = re.compile(r"\bunsafe (?:\{|impl\b)")

# The patterns of unclear prose, with their names.
PROSE = {
    "a person for a process": re.compile(r"\b(he|him|his|himself|somebody|whoever|whom)\b", re.I),
    "no subject": re.compile(
        r"(^|[.:;(]\s+|\b(for|of|to|by|from|than|and|that)\s+)(who|what)\s+(?!happens\b|is\s+(compared|measured|supported|different|proved)\b|can\b|to\b)\w+",
        re.I),
    "history": re.compile(r"\b(at first|no longer|used to be|it was \d|where it (was|had)|tried and|before the last|until this)\b", re.I),
    "odd term": re.compile(
        r"\b(by turns|of its own accord|all the same|lets? go of|hands? over|takes? in|goes? on being|is good for nothing|way to memory|our bar)\b", re.I),
}


def file_length(path, lines):
    """Lines beyond the limit."""
    return max(0, len(lines) - FILE_LINES_MAX) if path.suffix in CODE else 0


def long_functions(lines):
    """(line, name, length) of each function that is too long. Relies on rustfmt: the closing brace has the column of `fn`."""
    for at, line in enumerate(lines):
        found = FUNCTION.match(line)
        if not found:
            continue
        close = found.group(1) + "}"
        if line.rstrip().endswith((";", "}")):
            continue
        # A declaration in a trait has no body.
        is_declaration = lambda text: text.startswith(found.group(1) + ")") and text.endswith(";")
        end = next((n for n in range(at + 1, len(lines)) if lines[n] == close or is_declaration(lines[n])), None)
        if end is not None and end - at + 1 > FUNCTION_LINES_MAX:
            yield at + 1, found.group(2), end - at + 1


def function_length(path, lines):
    """Lines beyond the limit, of all functions together."""
    return sum(length - FUNCTION_LINES_MAX for _, _, length in long_functions(lines)) if path.suffix == ".rs" else 0


def unsafe_without_reason(path, lines):
    """Lines with an unsafe block or impl and no SAFETY comment before it."""
    if path.suffix != ".rs":
        return []
    return [at + 1 for at, line in enumerate(lines)
            if UNSAFE.search(line.split("//")[0]) and '"' not in line.split("unsafe")[0] and not has_reason(lines, at)]


def has_reason(lines, at):
    """Whether a SAFETY comment belongs to line `at`: on it, or above the statement that the line is a part of."""
    if "SAFETY" in lines[at]:
        return True
    for above in range(at - 1, max(-1, at - 12), -1):
        text = lines[above].strip()
        if "SAFETY" in text:
            return True
        is_part = text.startswith(("//", "#[")) or not text.endswith((";", "}", "{", "},")) or UNSAFE.search(text)
        if not is_part:
            return False
    return False


def prose(path, lines):
    """(line number, text) of what people read: documents whole but for code, comments of code."""
    if path.suffix == ".md":
        is_code = False
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif not is_code:
                yield number, line
        return
    pattern = re.compile(COMMENT.get(path.suffix, r"\s*#(.*)" if path.name == "Makefile" else r"(?!)"))
    for number, line in enumerate(lines, 1):
        found = pattern.match(line)
        if found:
            yield number, found.group(1).strip()


def readme_words(path, lines):
    """Words: parts between spaces with a letter or digit, outside of code blocks and of the targets of links."""
    text = " ".join(text for _, text in prose(path, lines))
    words = re.sub(r"\]\([^)]*\)", "]", text).split()
    return sum(any(letter.isalnum() for letter in word) for word in words)


def wide_comments(path, lines):
    """Numbers of the lines with a comment that is too wide."""
    return [] if path.suffix == ".md" else [number for number, _ in prose(path, lines) if len(lines[number - 1]) > COMMENT_COLUMNS_MAX]


def unclear(path, lines):
    """(line, what) of unclear prose."""
    return [(number, what) for number, text in prose(path, lines) for what, pattern in PROSE.items() if pattern.search(text)]


# Only crates/txn/src/directory.rs opens files of a pool: its owner may have planted links there.
POOL_CRATES = ("txn", "fs", "perdure", "server", "cli", "capi")
POOL_PATH = re.compile(r"\bpool(\(\)|\.path\(\))?\.join\(|\.join\((\w+::)*(SUPER_FILE|OWNER_FILE|CONTROL_SOCKET|USERS_FOLDER|segment_file)\b")
OPENS_PATH = re.compile(r"\bFile::(open|create|create_new|options)\(|\bOpenOptions\b|\bDirBuilder\b|\bfs::(read|write|remove\w*|rename|create_dir\w*|read_dir)\(")
# These read /proc only.
OPENS_PROC = ("holders.rs", "descriptors.rs")


def pool_paths(path, lines):
    """Numbers of the lines, outside of tests, that reach into a pool's directory past its handle."""
    found = re.search(r"crates/(\w+)/src/(?:.*/)?(\w+\.rs)$", path.as_posix())
    if not found or found[1] not in POOL_CRATES or (found[1], found[2]) == ("txn", "directory.rs"):
        return []
    end = next((at for at, line in enumerate(lines) if line.startswith("#[cfg(test)]")), len(lines))
    opens = found[1] == "txn" and found[2] not in OPENS_PROC
    return [at + 1 for at, line in enumerate(lines[:end]) if POOL_PATH.search(line) or (opens and OPENS_PATH.search(line))]


# Each rule gives for a file: (distance from the rule, places to look at).
RULES = {
    "file length": lambda path, lines: (file_length(path, lines), [f"{len(lines)} lines, {FILE_LINES_MAX} at most"]),
    "function length": lambda path, lines: (
        function_length(path, lines), [f"line {at}: {name} has {length} lines, {FUNCTION_LINES_MAX} at most" for at, name, length in long_functions(lines)]),
    "unsafe without SAFETY": lambda path, lines: counted(f"line {at}" for at in unsafe_without_reason(path, lines)),
    "comment width": lambda path, lines: counted(f"line {at}" for at in wide_comments(path, lines)),
    "opens past PoolDirectory": lambda path, lines: counted(f"line {at}" for at in pool_paths(path, lines)),
    "unclear prose": lambda path, lines: counted(f"line {at}: {what}" for at, what in unclear(path, lines)),
}


def counted(places):
    places = list(places)
    return len(places), places
