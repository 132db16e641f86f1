"""Each rule notices what it is there for."""

from pathlib import Path

from links import broken
from rules import RULES, readme_words

RUST = Path("a.rs")
# (rule, file, text that keeps the rule, text that does not)
SAMPLES = [
    ("file length", RUST, "x\n" * 600, "x\n" * 601),
    ("function length", RUST, "fn f() {\n" + "    x();\n" * 58 + "}\n", "    pub(crate) fn f(\n        a: u8,\n    ) {\n" + "        x();\n" * 58 + "    }\n"),
    ("unsafe without SAFETY", RUST, "// SAFETY: it is mapped.\nlet a = unsafe { x() };\n", "f();\nlet a = unsafe { x() };\n"),
    ("unsafe without SAFETY", RUST, "// SAFETY: no interior.\nunsafe impl Send for A {}\n", "// It is fine.\nunsafe impl Send for A {}\n"),
    ("opens past PoolDirectory", Path("crates/cli/src/a.rs"), "pool.path_of(SUPER_FILE);\n#[cfg(test)]\npool.join(SUPER_FILE);\n", "fs::write(pool.join(x), b)?;\n"),
    ("opens past PoolDirectory", Path("crates/txn/src/a.rs"), "pool.file(name, mode)?;\n", "let file = File::open(path)?;\n"),
    ("comment width", RUST, "// " + "x" * 97, "    /// " + "x" * 93),
    ("comment width", Path("a.sh"), "echo " + "x" * 200, "# " + "x" * 99),
    ("unclear prose", Path("a.md"), "The client reads `his`\n```\nwho reads\n```\n".replace("`his`", "it"), "The block is his.\n"),
    ("unclear prose", RUST, "/// Returns the writer.\nlet he = 1;\n", "/// Who writes waits.\n"),
    ("unclear prose", RUST, "/// Returns what happens.\n", "// The lock is no longer needed.\n"),
    ("unclear prose", Path("Makefile"), "a: ## text\n", "# Readers and writers go by turns.\n"),
]
LINKS = [("[a](b.md)", True), ("[a](c.md)", False), ("[a](b.md#two-words)", True), ("[a](b.md#three)", False), ("`[a](c.md)`", True), ("[a](https://x.y/z)", True)]


def failures():
    for rule, path, kept, broken_text in SAMPLES:
        for text, is_kept in ((kept, True), (broken_text, False)):
            found, _ = RULES[rule](path, text.splitlines())
            if (found == 0) != is_kept:
                yield f"rule '{rule}' {'objects to' if is_kept else 'misses'}: {text[:60]!r}"
    counted = readme_words(Path("README.md"), "# One\n```\nno words here\n```\n| two | [three](not/these words.md) | - |\n".splitlines())
    if counted != 3:
        yield f"words of the README: {counted} instead of 3"
    files = {Path("docs/b.md"): "# One\n## Two words\n"}
    for text, is_kept in LINKS:
        if (not list(broken(Path("docs/a.md"), text, files.get))) != is_kept:
            yield f"links: {text}"
