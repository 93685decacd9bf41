#!/usr/bin/env python3
"""Makes the documents a site with search: `make site`, which installs MkDocs from PyPI into BUILD/site-tools and calls this.

The site has the tree of the repository (README.md, docs/, man/, examples/), so that a link between documents is the same in both.
A link that leads nowhere, in the sources or in the pages that came of them, is an error. site.py BUILD
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = """
README.md|weft
Use weft: docs/notation.md docs/python.md docs/cli.md docs/running.md docs/coming-from.md docs/gpu.md docs/cluster.md docs/rendezvous.md
docs/bus.md docs/engines.md docs/checkpoints.md docs/integrity.md docs/flight.md docs/trace.md docs/sim.md docs/scale.md docs/limits.md examples/README.md SECURITY.md CHANGELOG.md
How fast: docs/benchmarks.md docs/ways.md
Change weft: docs/architecture.md docs/glossary.md docs/memory-model.md docs/hosts.md CONTRIBUTING.md tests/README.md
"""


def title_of(path):
    return re.search(r"^# (.+)$", path.read_text(), re.M)[1]


def navigation(source, manuals):
    sections, name = [], None
    for word in re.findall(r"\n([A-Z][a-z ]+):|(\S+\.md)(?=\s)", PAGES):
        if word[0]:
            name = word[0]
            sections.append((name, []))
        else:
            sections[-1][1].append(word[1])
    sections.append(("Manual pages", manuals))
    listed = {page for _, pages in sections for page in pages} | {"README.md", "docs/README.md"}
    for page in source.rglob("*.md"):
        if str(page.relative_to(source)) not in listed:
            raise SystemExit(f"site: {page.relative_to(source)} is in no section of cmake/site.py")
    text = "nav:\n  - weft: README.md\n  - All documents: docs/README.md\n"
    for name, pages in sections:
        text += f"  - {name}:\n" + "".join(f"    - {title_of(source / page)!r}: {page}\n" for page in pages)
    return text


def gather(source):
    """The tree that MkDocs reads: the documents, and what they link to."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for file in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "docs", "examples", "tests/README.md"):
        if (ROOT / file).is_dir():
            shutil.copytree(ROOT / file, source / file, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (source / file).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / file, source / file)
    manuals = []
    (source / "man").mkdir()
    for page in sorted((ROOT / "man").glob("*.[13]")):
        plain = subprocess.run(["groff", "-man", "-Tutf8", "-P-c", "-rLL=100n", str(page)], capture_output=True, text=True, check=True)
        text = re.sub(".\b", "", plain.stdout).strip("\n")
        (source / "man" / f"{page.name}.md").write_text(f"# {page.stem}({page.suffix[1]})\n\n```text\n{text}\n```\n")
        manuals.append(f"man/{page.name}.md")
    for page in source.rglob("*.md"):
        text = page.read_text()
        text = re.sub(r"\]\(((?:\.\./)?man/[a-z_.]+\.[13])\)", r"](\1.md)", text)
        text = re.sub(r"\]\(((?:\.\./)?(?:examples|docs))/?\)", r"](\1/README.md)", text)
        page.write_text(text)
    return manuals


class Links(html.parser.HTMLParser):
    """What a page links to, and the names in it."""

    def __init__(self):
        super().__init__()
        self.to, self.names = [], set()

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.to.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


def check(site):
    """Every link inside the site leads to a file of it and, in a page, to a name."""
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = Links()
        pages[path].feed(path.read_text())
    dead, seen = [], 0
    for path, links in pages.items():
        if path.name == "404.html":
            continue
        for link in links.to:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or link.startswith(("javascript:", "mailto:")):
                continue
            seen += 1
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (url.fragment and target in pages and url.fragment not in pages[target].names):
                dead.append(f"{path.relative_to(site)}: {link}")
    if dead:
        raise SystemExit("site: dead links:\n" + "\n".join(sorted(set(dead))))
    return len(pages), seen


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: site.py BUILD")
    build = pathlib.Path(sys.argv[1]).resolve()
    source, site = build / "site-source", build / "site"
    manuals = gather(source)
    config = build / "site.yml"
    config.write_text(
        "site_name: weft\nsite_description: redistributes sharded tensors between processes\n"
        f"docs_dir: {source}\nsite_dir: {site}\nuse_directory_urls: false\nstrict: true\n"
        "theme: {name: mkdocs, color_mode: auto, user_color_mode_toggle: true, highlightjs: false, navigation_depth: 3}\n"
        "plugins: [search]\nmarkdown_extensions: [tables, fenced_code, sane_lists, toc: {permalink: true}]\n"
        "validation: {nav: {omitted_files: info}, links: {not_found: warn, anchors: warn, unrecognized_links: warn}}\n"
        + navigation(source, manuals)
    )
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(config)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"site: {done.stdout}{done.stderr}")
    pages, links = check(site)
    print(f"{site}/index.html: {pages} pages, {links} links, none dead")


if __name__ == "__main__":
    main()
