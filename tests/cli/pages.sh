#!/usr/bin/env bash
# Pages in a real browser: pages.sh WEFT. Chromium loads each page without a message on its console, shows the numbers of
# the JSON, and draws it, in light and in dark. Screenshots go to $PAGES, or to a folder that is removed. `make test-pages`
# runs it.
set -u
weft=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "skip: chromium is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shots=${PAGES:-$work}
mkdir -p "$shots"
failed=0
complain() { echo "$1"; failed=1; }

browse() { timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" "$@"; }

# shoot NAME LOOK OPTIONS...: a screenshot.
shoot()
{
    browse --hide-scrollbars --window-size=1000,3000 --screenshot="$shots/$1-$2.png" "${@:3}" "file://$work/$1.html" \
        >"$work/shot.log" 2>&1
    [ -s "$shots/$1-$2.png" ] || complain "$1: no screenshot, $2"
}

# page NAME NUMBERS COMMAND...: a page with NUMBERS numbers or more that the JSON has, too.
page()
{
    local name=$1 numbers=$2
    shift 2
    "$weft" "$@" --html "$work/$name.html" --json >"$work/$name.json" || { complain "$name: weft $*"; return; }
    python3 "$here/page_numbers.py" "$work/$name.html" "$work/$name.json" "$numbers" || complain "$name: the file"
    browse --enable-logging=stderr --dump-dom "file://$work/$name.html" >"$work/$name.dom" 2>"$work/$name.log" ||
        complain "$name: the browser failed"
    grep CONSOLE "$work/$name.log" && complain "$name: the console has messages"
    while IFS= read -r key; do
        grep -qF "$key" "$work/$name.dom" || complain "$name: $key is not on the page"
    done < <(grep -o 'data-key="[a-z_]*" data-value="[^"]*"' "$work/$name.html")
    shoot "$name" light
    shoot "$name" dark --force-dark-mode --enable-features=WebContentsForceDark
}

page reshard 9 sim 'bf16[8192/x,8192] @x16' 'bf16[8192,8192/y] @d2.y8=16..31' --machine h100 --what-if
page allreduce 9 sim 'f32[1048576] @x16 +sum(x)' 'f32[1048576] @x16' --machine h100
page model 9 sim --model llama-3-70b --from fsdp64 --to dp8.tp8 --machine h100
page halo 2 plan 'f32[64/y~1,96/x~1] @y2.x4' 'f32[64/y,96/x] @y2.x4'
[ "$failed" = 0 ] && echo "pages: 4 pages, light and dark"
exit "$failed"
