#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=, with PrologFlags=Alloc): a status other than 0 drains the
# node and requeues the job. It calls no command of Slurm.
# https://slurm.schedmd.com/prolog_epilog.html
devices=${SLURM_JOB_GPUS:+--devices=$SLURM_JOB_GPUS}
nodes=${SLURM_JOB_NODELIST:+--nodes=$SLURM_JOB_NODELIST}
# Status 2, something is unknown, lets the job start: an agent that restarts must not drain nodes.
# Remove the test to refuse these nodes too.
timeout --kill-after=5 30 nodevitals preflight --timeout 20s $devices $nodes --port 6818 >&2
status=$?
[ "$status" = 1 ] && exit 1
exit 0
