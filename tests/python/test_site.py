"""`make site`: the documents as a site whose links all lead somewhere, with a search that knows them."""

import importlib.util
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def site_script():
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "cmake/site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "link, dead",
    [("b.html", False), ("b.html#there", False), ("http://elsewhere/x", False), ("c.html", True), ("b.html#gone", True), ("p.svg", True)],
)
def test_dead_links_are_found(tmp_path, link, dead):
    (tmp_path / "a.html").write_text(f'<p id="top"><a href="#top">t</a> <a href="{link}">x</a></p>')
    (tmp_path / "b.html").write_text('<h2 id="there">b</h2>')
    check = site_script().check
    if not dead:
        assert check(tmp_path)[0] == 2
        return
    with pytest.raises(SystemExit, match="a.html: " + link):
        check(tmp_path)


@pytest.mark.skipif(not os.environ.get("WEFT_TEST_BUILD"), reason="WEFT_TEST_BUILD is not set: no site is made")
def test_site(tmp_path):
    env = {**os.environ, "BUILD": str(tmp_path)}
    done = subprocess.run(["bash", "cmake/site.sh"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" links, none dead\n")
    for page in ("index.html", "docs/coming-from.html", "man/weft_collective.3.html"):
        assert (tmp_path / "site" / page).is_file(), page
    found = json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    assert any(entry["location"].startswith("docs/notation.html") and "Ghosts" in entry["text"] for entry in found)
