#!/usr/bin/env bash
# The headers of glibc 2.28, for which wheels are built, lack what came later: sources that include <sys/mman.h> or <sys/syscall.h> must
# compile without it. The headers of this machine stand in for them, with the later names taken away.
set -u
cd "$(dirname "$0")/../.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
later="SYS_pidfd_open SYS_pidfd_getfd SYS_pidfd_send_signal SYS_close_range SYS_clone3 SYS_openat2 SYS_faccessat2 SYS_epoll_pwait2
    SYS_process_madvise SYS_process_mrelease SYS_futex_waitv SYS_memfd_secret SYS_io_uring_setup
    MADV_POPULATE_READ MADV_POPULATE_WRITE MADV_COLLAPSE MADV_COLD MADV_PAGEOUT MFD_NOEXEC_SEAL MFD_EXEC MREMAP_DONTUNMAP"
{
    echo '#define _GNU_SOURCE'
    echo '#include <sys/mman.h>'
    echo '#include <sys/syscall.h>'
    for name in $later; do echo "#undef $name"; done
} >"$scratch/old.h"
compiles()
{
    "${CC:-cc}" -std=c11 -fsyntax-only -Isrc -Iinclude -Wno-macro-redefined -include "$scratch/old.h" "$1" >"$scratch/log" 2>&1
}

# What is planted must be found.
printf '#include <sys/syscall.h>\nint planted(void);\nint planted(void) { return SYS_pidfd_open; }\n' >"$scratch/planted.c"
! compiles "$scratch/planted.c" || { echo "a name that the old headers lack was not noticed"; exit 1; }

# Modules of libraries whose headers may be missing here.
left_out=/mpi/
echo '#include <cuda.h>' >"$scratch/cuda.c"
compiles "$scratch/cuda.c" || left_out='/mpi/|/cuda/'

n=0 bad=0
for file in $(grep -rlE '#include <sys/(mman|syscall)\.h>' src --include='*.c' | grep -vE "$left_out"); do
    n=$((n + 1))
    compiles "$file" || { echo "$file does not compile with the headers of glibc 2.28:"; grep -m 3 error "$scratch/log"; bad=1; }
done
echo "$n files"
[ "$n" -gt 5 ] && [ "$bad" = 0 ]
