#!/usr/bin/env python3
"""Draws docs/architecture.svg from the manifests of the crates: who uses whom, bottom up, and the folders of fs.

  scripts/architecture.py           writes the picture
  scripts/architecture.py --check   fails if the picture is not of this tree
"""

import html
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
# A few words say what each crate is. The check finds a crate without words.
WORDS = {
    "pmem": ["regions of memory:", "map, store, flush, fence"],
    "wal": ["the log on a disk", "below class log"],
    "alloc": ["Scatter-alloc:", "where blocks lie"],
    "device": ["data blocks that", "are not memory"],
    "tier": ["policies: ages,", "sweeps, pauses"],
    "readcache": ["DRAM copies", "of hot blocks"],
    "lease": ["records of files", "written directly"],
    "locks": ["locks for the", "process's side"],
    "txn": ["redo records,", "pools, recovery"],
    "fs": ["files, directories, check"],
    "home": ["the disk below a pool", "through io_uring"],
    "fuse": ["the kernel's protocol,", "classic and io_uring"],
    "direct": ["a process's side", "of direct access"],
    "descriptors": ["what a process knows", "of its descriptors"],
    "preload": ["direct access under", "unmodified programs"],
    "server": ["mounts, handlers, leases"],
    "perdure": ["the Rust library"],
    "capi": ["the C library"],
    "cli": ["the command perdure"],
    "draw": ["charts and pages"],
    "bench": ["experiments,", "published baselines"],
    "crashlab": ["power cuts, failing disks"],
}
BOX_W, BOX_H, GAP_X, GAP_Y, MARGIN = 150, 62, 18, 46, 24


def manifests():
    """{crate: the crates that it uses}, by the names of their folders."""
    folders = {path.parent.name: path.read_text() for path in ROOT.glob("crates/*/Cargo.toml")}
    package = {re.search(r'^name = "([^"]+)"', text, re.M).group(1): folder for folder, text in folders.items()}
    workspace = (ROOT / "Cargo.toml").read_text()
    alias = dict(re.findall(r'^(\w+) = \{ path = "crates/(\w+)"', workspace, re.M))
    uses = {}
    for folder, text in folders.items():
        part = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", text, re.M | re.S)
        names = re.findall(r"^([\w-]+)(?:\.workspace)? = ", part.group(1) if part else "", re.M)
        uses[folder] = {alias.get(name) or package.get(name) for name in names} - {None, folder}
    return uses


def reduced(uses):
    """Without the arrows that others imply."""
    def reach(crate, seen):
        for below in uses[crate]:
            if below not in seen:
                seen.add(below)
                reach(below, seen)
        return seen
    implied = {crate: set().union(*(reach(below, set()) for below in uses[crate])) for crate in uses}
    return {crate: uses[crate] - implied[crate] for crate in uses}


def rows(uses):
    """Crates by height: each one row above the highest that it uses."""
    height = {}

    def find(crate):
        if crate not in height:
            height[crate] = 1 + max((find(below) for below in uses[crate]), default=-1)
        return height[crate]
    for crate in uses:
        find(crate)
    found = [[] for _ in range(max(height.values()) + 1)]
    order = list(WORDS)
    for crate in sorted(uses, key=order.index):
        found[height[crate]].append(crate)
    return found


def folders_of_fs():
    """The rows of the table in the documentation of fs, bottom up."""
    text = (ROOT / "crates/fs/src/lib.rs").read_text()
    return re.findall(r"^//! \| `(\w+)` \| (.+) \|$", text, re.M)


def text(x, y, content, extra=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {extra}>{html.escape(content)}</text>'


def picture():
    uses = manifests()
    missing = sorted(set(uses) - set(WORDS))
    if missing:
        sys.exit(f"{__file__}: WORDS has no words for {', '.join(missing)}")
    levels = rows(uses)
    width = max(len(level) for level in levels) * (BOX_W + GAP_X) - GAP_X + 2 * MARGIN
    folders = folders_of_fs()
    crates_h = len(levels) * (BOX_H + GAP_Y) - GAP_Y
    height = crates_h + 3 * MARGIN + 34 + 20 * len(folders)
    place, parts = {}, []
    for level, crates in enumerate(levels):
        y = MARGIN + (len(levels) - 1 - level) * (BOX_H + GAP_Y)
        left = (width - len(crates) * (BOX_W + GAP_X) + GAP_X) / 2

        def centre(crate):
            """Where what it uses lies on average, so that few arrows cross."""
            below = [place[other][0] for other in uses[crate] if other in place]
            return sum(below) / len(below) if below else width
        if level > 0:
            crates.sort(key=centre)
        for index, crate in enumerate(crates):
            place[crate] = (left + index * (BOX_W + GAP_X), y)
    for crate, below in sorted(reduced(uses).items()):
        for other in sorted(below):
            (x, y), (to_x, to_y) = place[crate], place[other]
            x, to_x, y = x + BOX_W / 2, to_x + BOX_W / 2, y + BOX_H
            middle = (y + to_y) / 2
            parts.append(f'<path class="arrow" d="M{x:.0f} {y:.0f}C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y - 4:.0f}"/>')
    for crate, (x, y) in sorted(place.items()):
        parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_W}" height="{BOX_H}" rx="6"/>')
        parts.append(text(x + BOX_W / 2, y + 20, crate, 'class="name"'))
        for index, words in enumerate(WORDS[crate]):
            parts.append(text(x + BOX_W / 2, y + 37 + 14 * index, words, 'class="words"'))
    y = crates_h + 2 * MARGIN + 14
    parts.append(text(MARGIN, y, "Folders of fs, the uppermost first; each uses only those below it", 'class="head"'))
    for index, (folder, words) in enumerate(reversed(folders)):
        at = y + 24 + 20 * index
        parts.append(text(MARGIN, at, folder, 'class="folder"'))
        parts.append(text(MARGIN + 110, at, words.replace("`", ""), 'class="meaning"'))
    style = """text{font-family:system-ui,sans-serif;fill:#1b1f24}rect{fill:#f4f6f8;stroke:#57606a}.arrow{fill:none;stroke:#8c959f;marker-end:url(#tip)}
.name{font-size:15px;font-weight:600;text-anchor:middle}.words{font-size:11px;text-anchor:middle}.head{font-size:14px;font-weight:600}
.folder{font-size:13px;font-weight:600}.meaning{font-size:13px}svg{background:#fff}"""
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker>'
    title = "<title>The crates of Perdure, from memory at the bottom to commands at the top; an arrow leads to what a crate uses</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    return "\n".join([head, title, f"<style>{style}</style>", f"<defs>{tip}</defs>", *parts, "</svg>", ""])


def main():
    drawn = picture()
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text() != drawn:
            sys.exit(f"{PICTURE.relative_to(ROOT)} is not of this tree; run scripts/architecture.py")
        return
    PICTURE.write_text(drawn)


if __name__ == "__main__":
    main()
