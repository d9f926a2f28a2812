#!/usr/bin/env bash
# The GPU tests, on a machine with one NVIDIA GPU, Python with PyTorch, JAX and CuPy, and a C compiler.
#   tests/gpu/run.sh                       everything (about 20 minutes)
#   tests/gpu/run.sh table share memory    only these parts
# Parts: serve tenants hint table groups doctor outside calibrate memory share frameworks demo overhead-resnet50 overhead-compiled overhead-graph.
# Where one command may take 10 minutes: table calibrate memory frameworks / share demo / overhead-* are three commands.
# Each part ends within its own limit; its result is $OUT/<part>.json. Needs target/release/{sluice,libsluice.so}
# (`cargo xtask build`); SLUICE_BUILD names another folder. SLUICE_COMMIT is recorded where git cannot tell the commit.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export PYTHONUNBUFFERED=1 OUT=${OUT:-/tmp/sluice-gpu-results}
build=${SLUICE_BUILD:-target/release}
mkdir -p "$OUT"
[ $# -gt 0 ] || set -- table calibrate memory frameworks share demo overhead-resnet50 overhead-compiled overhead-graph

part() {
  case $1 in
    table)
      ${CC:-cc} -O1 -Wall -o "$OUT/.check_table" "$here/check_table.c" -ldl &&
        { timeout -k 5 60 "$OUT/.check_table" "$here/driver-table.txt" >"$OUT/.table"; code=$?; }
      # The facts are added and the program is not kept; the exit status is the comparison's.
      (cd "$here" && python3 -c 'import json, sys, rig; rig.write("check-table", json.load(open(sys.argv[1])))' "$OUT/.table") || code=2
      rm -f "$OUT/.check_table" "$OUT/.table"
      return "${code:-2}" ;;
    calibrate) timeout -k 10 260 python3 "$here/calibrate.py" --gpu real ;;
    memory) timeout -k 10 320 python3 "$here/memory.py" ;;
    frameworks) timeout -k 10 440 python3 "$here/frameworks.py" ;;
    share) timeout -k 10 440 python3 "$here/share.py" ;;
    serve) timeout -k 10 585 python3 "$here/serve.py" --short-requests 200 --limit 575 ;;
    tenants) timeout -k 10 410 python3 "$here/tenants.py" --limit 400 ;;
    hint) timeout -k 10 120 python3 "$here/hint.py" ;;
    doctor) timeout -k 10 120 python3 "$here/doctor.py" ;;
    outside) timeout -k 10 100 python3 "$here/outside.py" ;;
    groups) timeout -k 10 120 python3 "$here/groups.py" ;;
    demo) timeout -k 10 120 "$build/sluice" demo --gpu real --seconds 30 --json "$OUT/demo-real.json" ;;
    overhead-*) timeout -k 10 400 python3 "$here/overhead.py" "${1#overhead-}" --name "$1" --limit 390 ;;
    *) echo "no such part: $1"; return 2 ;;
  esac
}

failed=()
for name in "$@"; do
  printf '== %s (%s)\n' "$name" "$(date -u +%H:%M:%S)"
  part "$name" || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
  printf '== failed (%s): %s\n' "$(date -u +%H:%M:%S)" "${failed[*]}"
  exit 1
fi
printf '== all parts passed (%s)\n' "$(date -u +%H:%M:%S)"
