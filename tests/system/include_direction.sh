#!/usr/bin/env bash
# The layers of the design, checked: which folder may include which, and that the compile half
# (layout, plan, lower) has no I/O, threads, clock or environment. `include_direction.sh [ROOT]`
# checks a tree and prints each violation; without ROOT it checks this one and then plants violations in a small tree of the
# same folders, where it must find every one of them and nothing else. tests/system/layers.txt is the table; `--draw` prints
# it as docs/architecture.md shows it, and `--write` writes it there.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)

compile_half="layout plan lower"
layers=$here/tests/system/layers.txt
rows=$(awk '!/^#/ && NF { print $1 }' "$layers")
# The library is what prints nothing and is linked into programs; tool, foresee, cli, bench and examples are programs.
library=$(grep -vE '^(tool|foresee|cli|bench|examples)(/|$)' <<<"$rows" | tr '\n' ' ')
library=${library% }
tops=$(cut -d / -f 1 <<<"$rows" | sort -u)

# place FOLDER: where a folder of the table stands in the tree.
place()
{
    case $1 in
        bench | bench/* | examples) echo "$1" ;;
        *) echo "src/$1" ;;
    esac
}

# A folder of this tree, wherever its files stand below it.
sources() { find "$1" -name '*.[ch]' -size +0c 2>/dev/null | sort; }

# draw: the picture of docs/architecture.md, a line a folder.
draw()
{
    awk '!/^#/ && NF { printf "%-18s", $1; for (i = 2; i <= NF; i++) printf " %s", $i; print "" }' "$layers" |
        sed 's/ *$//'
}

# The library never prints, aborts or exits. The compile half moreover has none of the rest.
printing='printf|vprintf|puts|putchar|fprintf|vfprintf|fputs|fputc|putc|perror|abort|exit|_exit|_Exit|quick_exit'
files='fopen|fdopen|freopen|tmpfile|fread|fwrite|fgets|fgetc|getc|getchar|scanf|fscanf|remove|rename|unlink'
files+='|open|openat|creat|close|read|write|pread|pwrite|lseek|stat|fstat|mmap|munmap|socket|connect|ioctl|syscall'
clocks='time|clock|clock_gettime|gettimeofday|timespec_get|sleep|usleep|nanosleep|clock_nanosleep|sched_yield'
rest="getenv|secure_getenv|setenv|putenv|rand|srand|random|drand48|getrandom|sysconf|getpid|fork|system|popen"
rest+="|signal|sigaction|raise|kill|setlocale|pthread_[a-z_]+|thrd_[a-z_]+|mtx_[a-z_]+|cnd_[a-z_]+|sem_[a-z_]+"
headers='pthread|threads|semaphore|sched|time|unistd|fcntl|signal|dirent|poll|dlfcn|locale|sys/[a-z]+|linux/[a-z]+'

# strip FILE...: "file:line:text" for each line, without comments and the insides of strings.
strip()
{
    awk '
        FNR == 1 { comment = 0 }
        !comment && !/["\047]|\/[\/*]/ { print FILENAME ":" FNR ":" $0; next }
        {
            out = ""
            for (i = 1; i <= length($0); i++) {
                two = substr($0, i, 2); c = substr($0, i, 1)
                if (comment) { if (two == "*/") { comment = 0; i++ } continue }
                if (quote != "") {
                    if (c == "\\") { i++; continue }
                    if (c == quote) { quote = ""; out = out c }
                    continue
                }
                if (two == "/*") { comment = 1; i++; out = out " "; continue }
                if (two == "//") break
                if (c == "\"" || c == "\047") quote = c
                out = out c
            }
            quote = ""
            print FILENAME ":" FNR ":" out
        }' "$@"
}

# show WHAT: turns "file:line:text" into a violation a line.
show() { sed "s|^\([^:]*:[0-9]*\):[[:space:]]*\(.*\)|\1: $1: \2|"; }

# check_includes FILE...: what is included with quotes, besides weft.h and headers of the same folder. A file, or a header as
# it is included, belongs to the longest folder of the table that fits.
check_includes()
{
    grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$@" | awk '
        function folder_of(name)
        {
            do
                sub(/\/[^\/]*$/, "", name)
            while (name ~ /\// && !(name in known))
            return name
        }
        NR == FNR {
            if (!/^#/ && NF) {
                known[$1]
                for (i = 2; i <= NF; i++) may[$1, $i]
            }
            next
        }
        {
            split($0, part, ":")
            file = part[1]
            name = $0
            sub(/^[^"]*"/, "", name)
            sub(/".*/, "", name)
            own = file
            sub(/^src\//, "", own)
            own = folder_of(own)
            if (name ~ /^weft(\/[a-z]+)?\.h$/) next
            if (name !~ /\//) {
                beside = file
                sub(/[^\/]*$/, name, beside)
                if ((getline line < beside) < 0) print file ":" part[2] ": \"" name "\" is not in this folder"
                close(beside)
            } else if (name ~ /^\./ || (folder_of(name) != own && !((own, folder_of(name)) in may) && !((own, name) in may)))
                print file ":" part[2] ": " own " may not include \"" name "\""
        }' "$layers" -
    # Angle brackets are for the system; the folders of this tree must not be reached that way.
    grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*<((${tops//$'\n'/|})/|\.)" "$@" |
        show "may not include"
}

# calls NAMES: of stripped lines those in which one of these functions is called.
calls() { grep -E "^[^:]*:[0-9]*:(.*[^A-Za-z0-9_.>])?($1)[[:space:]]*\("; }

check_tree()
{
    local root=$1 folder all stripped pure
    cd "$root" || return 1
    mapfile -t all < <(for folder in $tops; do sources "$(place "$folder")"; done)
    check_includes "${all[@]}"
    mapfile -t all < <(for folder in $library; do sources "src/$folder"; done | sort -u)
    stripped=$(strip "${all[@]}")
    calls "$printing" <<<"$stripped" | show "the library never prints or exits"
    pure=$(grep -E "^src/(${compile_half// /|})/" <<<"$stripped")
    calls "$files|$clocks|$rest" <<<"$pure" | show "the compile half is pure"
    grep -E "^[^:]*:[0-9]*:[[:space:]]*#[[:space:]]*include[[:space:]]*<($headers)\.h>" <<<"$pure" |
        show "the compile half is pure"
    grep -E '^[^:]*:[0-9]*:(.*[^A-Za-z0-9_])?(stdout|stderr|stdin|environ|errno)([^A-Za-z0-9_]|$)' <<<"$pure" |
        show "the compile half is pure"
    # An unknown folder would go unchecked.
    for folder in src/*/; do
        folder=$(basename "$folder")
        grep -qxF -- "$folder" <<<"$tops" || echo "src/$folder: no rule says what it may include"
    done
    # The headers of the interface stand alone: weft.h needs the compiler's headers, the others weft.h.
    grep -HnE '#[[:space:]]*include' include/weft.h | grep -vE '<std(bool|def|int)\.h>' |
        show "weft.h stands alone"
    grep -HnE '#[[:space:]]*include' include/weft/* 2>/dev/null | grep -v '<weft\.h>' |
        show "includes weft.h and nothing else"
}

if [ "${1:-}" = --draw ]; then
    draw
    exit
fi
if [ "${1:-}" = --write ]; then
    draw | sed 's/^/    /' >"$here/docs/architecture.md.new" &&
        sed -i -e '/^<!-- layers:/,/^<!-- end of layers/{/^<!--/!d}' \
            -e "/^<!-- layers:/r $here/docs/architecture.md.new" "$here/docs/architecture.md"
    rm -f "$here/docs/architecture.md.new"
    exit
fi
if [ $# -gt 0 ]; then
    found=$(check_tree "$1")
    [ -z "$found" ] && exit 0
    echo "$found"
    exit 1
fi

failed=0
if ! bash "$0" "$here"; then
    failed=1
fi

# plant VERDICT FOLDER LINE: a file with this line, which must be refused (bad) or not (good). The tree is checked once, with
# all of them in it: each has a number, which what is found in it carries.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/include"
cp "$here/include/weft.h" "$copy/include/"
for folder in $rows; do
    mkdir -p "$copy/$(place "$folder")"
    touch "$copy/$(place "$folder")/${folder##*/}.h"
done
verdicts=() folders=() lines=()
plant()
{
    mkdir -p "$copy/$2"
    printf '%s\n' "$3" >"$copy/$2/planted${#lines[@]}.c"
    verdicts+=("$1") folders+=("$2") lines+=("$3")
}

plant bad include/weft '#include <stdlib.h>'
plant bad include/weft '#include "base/error.h"'
plant good include/weft '#include <weft.h>'
plant bad src/base '#include "layout/layout.h"'
plant bad src/layout '#include "plan/plan.h"'
plant bad src/plan '#include "lower/lower.h"'
plant bad src/lower '#include "memory/memory.h"'
plant bad src/lower '  #  include "engine/exec.h"'
plant bad src/memory '#include "plan/plan.h"'
plant bad src/rendezvous '#include "transport/transport.h"'
plant bad src/rendezvous '#include "memory/memory.h"'
plant bad src/transport '#include "engine/exec.h"'
plant bad src/transport '#include "lower/lower.h"'
plant bad src/engine '#include "layout/layout.h"'
plant bad src/engine '#include "plan/verify/verify.h"'
plant bad src/engine '#include "../lower/lower.h"'
plant bad src/engine '#include <lower/lower.h>'
plant bad src/engine '#include "cli/cli.h"'
plant bad src/engine 'void f(void) { printf("x"); }'
plant bad src/comm '#include "engine/exec.h"'
plant bad src/comm '#include "window/remote.h"'
plant bad src/comm '#include "exchange/pipe.h"'
plant bad src/engine '#include "window/window.h"'
plant bad src/window '#include "exchange/exchange.h"'
plant bad src/exchange '#include "engine/exec.h"'
plant bad src/exchange/deep '#include "engine/exec.h"'
plant bad src/memory '#include "layout/layout.h"'
plant bad src/checkpoint '#include "engine/exec.h"'
plant bad src/layout '#include "checkpoint/checkpoint.h"'
plant bad src/cli '#include "base/error.h"'
plant bad src/cli '#include "base/json_read.h"'
plant bad src/cli '#include "bench/harness/measure.h"'
plant bad src/cli/check '#include "cli/cli.h"'
plant bad src/cli/check '#include "cli/files/npy.h"'
plant bad src/cli/move '#include "cli/check/oracle.h"'
plant bad src/cli/run '#include "bench/tables/bench.h"'
plant bad src/cli/diagnose '#include "base/utf8.h"'
plant bad src/tool '#include "cli/cli.h"'
plant bad src/tool '#include "bench/work/work.h"'
plant bad src/tool '#include "base/error.h"'
plant bad src/base '#include "tool/args.h"'
plant bad bench '#include "plan/plan.h"'
plant bad bench '#include "bench/harness/measure.h"'
plant bad bench/work '#include "bench/ranks/orders.h"'
plant bad bench/work '#include "tool/failure.h"'
plant bad bench/ranks '#include "bench/harness/measure.h"'
plant bad bench/harness '#include "bench/tables/bench.h"'
plant bad bench/tables '#include "cli/cli.h"'
plant bad bench/tables '#include <cli/cli.h>'
plant bad bench/tables '#include "base/json_read.h"'
plant bad examples '#include "base/base.h"'
plant bad src/layout '#include <pthread.h>'
plant bad src/layout '#include <sys/mman.h>'
plant bad src/plan 'static int f(void) { return open("x", 0); }'
plant bad src/plan 'void *f(void) { return fopen ("x", "r"); }'
plant bad src/plan 'int f(void) { return fputs("x", stdout); }'
plant bad src/plan 'void *f = stderr;'
plant bad src/lower 'char *f(void) { return getenv("WEFT"); }'
plant bad src/lower 'void f(void) { clock_gettime(0, 0); }'
plant bad src/lower 'void f(void) { pthread_mutex_lock(0); }'
plant bad src/lower 'void f(void) { abort(); }'
plant bad src/strange 'int x;'
plant good src/base '#include "base/base.h"'
plant good src/layout '#include "base/base.h"'
plant good src/lower '#include "plan/plan.h"'
plant good src/engine '#include "plan/plan.h"'
plant good src/engine '#include "transport/transport.h"'
plant bad src/transport '#include "rendezvous/store.h"'
plant bad src/transport/wire '#include "transport/shm/shm.h"'
plant bad src/comm '#include "transport/shm/shm.h"'
plant bad src/plan '#include "plan/verify/verify.h"'
plant bad src/transport/wire/tcp '#include "transport/hosts/hosts.h"'
plant bad src/transport/shm '#include "transport/wire/wire.h"'
plant bad src/transport/hosts '#include "transport/shm/shm.h"'
plant bad src/transport/core '#include "transport/hosts/hosts.h"'
plant good src/transport/hosts '#include "transport/wire/wire.h"'
plant good src/transport/wire/tcp '#include "transport/transport.h"'
plant good src/transport '#include "transport/shm/shm.h"'
plant good src/comm '#include "rendezvous/store.h"'
plant good src/engine 'void f(void) { pthread_mutex_lock(0); }'
plant good src/checkpoint '#include "layout/layout.h"'
plant good src/cli '#include "cli/cli.h"'
plant good src/cli '#include "cli.h"'
plant good src/cli '#include "bench/tables/bench.h"'
plant good src/cli '#include "cli/check/oracle.h"'
plant good src/cli/check '#include "cli/move/runner.h"'
plant good src/cli/diagnose '#include "base/json_read.h"'
plant good src/tool '#include "base/utf8.h"'
plant good src/tool 'int printf(const char *, ...); void f(void) { printf("x"); }'
plant good bench/tables '#include "bench/harness/measure.h"'
plant good bench/harness '#include "tool/failure.h"'
plant good src/cli '#include "weft.h"'
plant good bench '#include <weft.h>'
plant good src/plan '/* open(2) and getenv( are only named here */ int n = 1; // time(0)'
plant good src/plan 'const char *s = "printf(\"%d\") getenv(x)"; int snprintf(char *b, long n, const char *f, ...);'
plant good src/plan 'int f(struct p *p) { return p->open(1) + p->ops.read(2) + reopen(3); }'

found=$(bash "$0" "$copy")
for i in "${!lines[@]}"; do
    result=good name=${folders[i]}/planted$i.c
    [ "${folders[i]}" = src/strange ] && name=src/strange # no rule is for the folder itself
    grep -qF "$name:" <<<"$found" && result=bad
    if [ "$result" != "${verdicts[i]}" ]; then
        echo "self-check: in ${folders[i]}, the line '${lines[i]}' should be ${verdicts[i]}"
        failed=1
    fi
done
others=$(grep -vE '^([a-z/]+/planted[0-9]+\.c|src/strange):' <<<"$found")
if [ -n "$others" ]; then
    printf 'self-check: found where nothing is planted:\n%s\n' "$others"
    failed=1
fi

[ "$failed" -eq 0 ] && echo "include direction: all right"
exit "$failed"
