#!/usr/bin/env python3
"""One idea has one word. `glossary.py [ROOT]` fails

  - where a word comes back that was replaced (replaced.txt beside this file lists them),
  - where docs/glossary.md names a home that does not exist, or a word that its home does not use.

It also lists the functions and structs of other folders that have a word of the glossary in their name: the word may
mean something else there."""
import collections
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Where replaced words must not stand. Two documents are generated; what they say is checked where that is written.
PLACES = ["src", "include", "docs", "man", "README.md", "CONTRIBUTING.md", "SECURITY.md"]
LEFT_OUT = {os.path.join("docs", "benchmarks.md"), os.path.join("docs", "ways.md")}
# Words that their home is about to use: it is not a fault that it does not yet.
COMING: set = set()
DEFINED = re.compile(r"^(?:struct (\w+) \{|(?!static |typedef |#)[a-z][\w \*]*?[ \*](\w+)\([^;\n]*$)", re.M)


def texts(root):
    for place in PLACES:
        path = os.path.join(root, place)
        found = [path] if os.path.isfile(path) else [os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs]
        for name in sorted(found):
            if os.path.relpath(name, root) not in LEFT_OUT and name.endswith((".c", ".h", ".md", ".1", ".3", ".map")):
                with open(name, encoding="utf-8") as f:
                    yield os.path.relpath(name, root), f.read()


def replaced():
    """(gone, words, the expression for them, what to say instead) of each line of replaced.txt."""
    with open(os.path.join(HERE, "replaced.txt"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                state, words, instead = re.split(r"\t+", line.strip())
                if state not in ("gone", "going"):
                    sys.exit(f"replaced.txt: neither gone nor going: {line}")
                yield state == "gone", words, re.compile(rf"(?:{words})(?![a-z])"), instead


def uses(expression, text):
    """Does the text, in lower case, have it as a word? "_" and digits end a word, so that it is also found inside of names."""
    return any(not m.start() or not text[m.start() - 1].isalpha() for m in expression.finditer(text))


def glossary(root):
    """(word, its homes) of each row."""
    with open(os.path.join(root, "docs", "glossary.md"), encoding="utf-8") as f:
        for word, homes in re.findall(r"^\| ([a-z][a-z -]*) \| .* \| (`.*`) \|$", f.read(), re.M):
            yield word, re.findall(r"`(\w+)`", homes)


def in_folder(name):
    parts = name.split(os.sep)
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def main(root):
    files = dict(texts(root))
    lower = {name: text.lower() for name, text in files.items()}
    wrong = 0
    for gone, words, expression, instead in replaced():
        found = [f"{name}:{n}: {line.strip()}" for name, text in files.items() if uses(expression, lower[name])
                 for n, line in enumerate(text.split("\n"), 1) if uses(expression, line.lower())]
        if gone and found:
            print(f"say '{instead}' instead of '{words}':", *found[:20], sep="\n  ")
            wrong += 1
        elif not gone:
            print(f"still there: '{words}', {len(found)} lines; '{instead}' is the word")

    by_folder, defined = collections.defaultdict(str), collections.defaultdict(set)
    for name, text in files.items():
        folder = in_folder(name)
        if folder:
            by_folder[folder] += text
            defined[folder] |= {a or b for a, b in DEFINED.findall(text)}
    words = list(glossary(root))
    if len(words) < 30 or sum(map(len, defined.values())) < 500:
        sys.exit(f"{len(words)} words and {sum(map(len, defined.values()))} names: the glossary or src was not understood")
    for word, homes in words:
        for home in homes:
            if home not in by_folder:
                print(f"glossary.md: '{word}': there is no folder src/{home}")
                wrong += 1
        used = re.compile(r"(?<![a-z])" + r"[\s*_-]+".join(re.split("[ -]", word)), re.I)
        if word not in COMING and not any(used.search(by_folder[home]) for home in homes):
            print(f"glossary.md: '{word}' is not used in {' or '.join(homes)}")
            wrong += 1
        part = re.compile(rf"(?:^|_){re.sub('[ -]', '_', word)}s?(?:_|$)")
        others = [f"{folder}/{name}" for folder in sorted(defined) if folder not in homes for name in sorted(defined[folder])
                  if part.search(name)]
        if others:
            print(f"'{word}' of {', '.join(homes)} is also in: {', '.join(others)}")
    print(f"{len(words)} words, {wrong} wrong")
    return wrong > 0


sys.exit(main(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../.."))))
