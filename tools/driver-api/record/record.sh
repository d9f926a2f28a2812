#!/bin/sh
# Records the functions that CUDA runtimes request from their driver, into crates/driver-api/tests/fixtures/cudart-<version>.txt.
# Usage: record.sh <version> <libcudart.so.N> ...   (pairs; the libraries are in PyPI's nvidia-cuda-runtime* wheels)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fixtures=$here/../../../crates/driver-api/tests/fixtures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$fixtures"
cc -shared -fPIC -Wall -o "$work/libcuda.so.1" "$here/stub.c"
cc -Wall -o "$work/ask" "$here/ask.c" -ldl
while [ $# -ge 2 ]; do
    LD_LIBRARY_PATH=$work RECORD_FD=3 "$work/ask" "$2" 3>"$work/asked"
    sort -u "$work/asked" >"$fixtures/cudart-$1.txt"
    echo "cudart $1: $(wc -l <"$work/asked") queries, $(wc -l <"$fixtures/cudart-$1.txt") different"
    shift 2
done
