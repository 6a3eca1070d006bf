#!/bin/sh
# Records the same unmodified script by torch.profiler and by nsys on two GPUs, and compares step
# times. Usage: sh tests/gpu/verify_capture.sh OUT. Needs two GPUs, torch, and nsys (see
# TRACE_ANALYZER_NSYS). What must hold is checked by tests/gpu/check_capture.py.
set -u
out=$1
work=${TMPDIR:-/tmp}/verify_capture
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
mkdir -p "$out" "$work"
cli="python3 -m trace_analyzer"
train="torchrun --nproc-per-node 2 tests/gpu/train_gpt.py"
clock() { echo "== $1 at $(($(date +%s) - begin)) s"; }
begin=$(date +%s)
nvidia-smi -q -d CLOCK,PERFORMANCE | head -40 >"$work/clocks.txt"

clock "plain run"
$train --steps 70 --times "$work/plain.json"
clock "collect torch"
$cli collect torch -o "$work/torch" --force -- $train --steps 112 --times "$work/in_torch.json"
echo "exit $?"
clock "collect nsys"
$cli collect nsys -o "$work/nsys" --force -- $train --steps 112 --times "$work/in_nsys.json"
echo "exit $?"
clock "timer overhead"
python3 -m tests.gpu.timer_overhead "$work/overhead.json"
clock "pack"
rm -f "$work"/nsys/*.qdstrm
tar -C "$work" -cf "$out/torch.tar" torch
tar -C "$work" --exclude='*.nsys-rep' -czf "$out/nsys.tar.gz" nsys
cp "$work"/*.json "$out"/
ls -la "$out" "$work/torch" "$work/nsys"
clock "end"
