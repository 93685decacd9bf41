#!/usr/bin/env python3
"""page_numbers.py PAGE JSON N: the page is well formed, loads nothing, has texts for those who cannot see its pictures, and its
numbers, N or more, are those of the JSON."""
import html.parser
import json
import sys

VOID = {"meta", "link", "br", "hr", "img"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.numbers, self.tags = [], [], {}, []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag not in VOID:
            self.open.append(tag)
        if "data-key" in attrs:
            self.numbers[attrs["data-key"]] = float(attrs["data-value"])
        if tag == "script" or any(name in attrs and attrs[name] != "data:," for name in ("src", "href")):
            self.wrong.append(f"<{tag}> loads or runs something")
        if tag == "svg" and not (attrs.get("role") == "img" and attrs.get("aria-label")):
            self.wrong.append("a picture has no text for those who cannot see it")
        if tag == "th" and "scope" not in attrs:
            self.wrong.append("a heading of a table has no scope")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes something else, at {self.getpos()}")


page = Page()
with open(sys.argv[1], encoding="utf-8") as file:
    page.feed(file.read())
with open(sys.argv[2], encoding="utf-8") as file:
    said = json.load(file)
wrong = page.wrong + [f"<{tag}> is not closed" for tag in page.open]
tags = [tag for tag, _ in page.tags]
if ("html", {"lang": "en"}) not in page.tags:
    wrong.append("the page does not say its language")
for tag, count in (("h1", 1), ("main", 1), ("title", None)):
    if tag not in tags or (count and tags.count(tag) != count):
        wrong.append(f"the page has {tags.count(tag)} <{tag}>")
if tags.count("table") != tags.count("caption"):
    wrong.append("a table has no caption")
compared = 0
for key, value in page.numbers.items():
    if key in said:
        compared += 1
        if abs(value - said[key]) > (0.501 if key.endswith("_ns") else 1e-5 * abs(value)):
            wrong.append(f"{key} is {value} on the page and {said[key]} in the JSON")
if compared < int(sys.argv[3]):
    wrong.append(f"only {compared} numbers could be compared")
print("\n".join(wrong[:20]))
sys.exit(bool(wrong))
