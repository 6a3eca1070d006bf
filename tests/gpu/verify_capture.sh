#!/bin/sh
# Records the same unmodified script by torch.profiler and by nsys on two GPUs, and compares step
# times. Usage: sh tests/gpu/verify_capture.sh OUT [PART…]; parts: plain torch nsys ranks timer
# calibration, all of them by default. Needs two GPUs, torch, and nsys (TRACE_ANALYZER_NSYS).
set -u
out=$1
shift
parts=${*:-plain torch nsys ranks timer calibration}
work=${TMPDIR:-/tmp}/verify_capture
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
mkdir -p "$out" "$work"
cli="python3 -m trace_analyzer"
train="torchrun --nproc-per-node 2 tests/gpu/train_gpt.py"
begin=$(date +%s)

for part in $parts; do
    echo "== $part at $(($(date +%s) - begin)) s"
    case $part in
    plain) $train --steps 70 --times "$work/plain.json" ;;
    torch) $cli collect torch -o "$work/torch" --force --unprofiled 60 -- \
        $train --steps 170 --times "$work/in_torch.json" ;;
    nsys) $cli collect nsys -o "$work/nsys" --force -- \
        $train --steps 112 --times "$work/in_nsys.json" ;;
    ranks) $cli collect nsys -o "$work/ranks" --force --per-rank --no-timing-run \
        --stop-when-done -- $train --steps 60 ;;
    timer) python3 -m trace_analyzer.collectors.timer_cost -o "$work/timer_cost.json" ;;
    calibration) python3 -m tests.gpu.calibrate "$work/calibration.json" ;;
    esac
    echo "exit $?"
done
for bundle in torch nsys ranks; do
    [ -d "$work/$bundle" ] && ls -la "$work/$bundle" &&
        tar -C "$work" --exclude='*.nsys-rep' -czf "$out/$bundle.tar.gz" "$bundle"
done
cp "$work"/*.json "$out"/
echo "== end at $(($(date +%s) - begin)) s"
