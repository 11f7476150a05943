#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=, with PrologFlags=Alloc): a status other than 0 drains the
# node and requeues the job. It calls no command of Slurm.
# https://slurm.schedmd.com/prolog_epilog.html
# It runs as root. slurmd starts it without the job's environment and without a search path; here
# preflight gets no variable at all but PATH, whichever user starts the script. Add the folder of
# nodevitals where it is another.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Each value of the job is one argument, and no value is the name of a file. A job without
# accelerators does not look at those of other jobs.
set -- --port 6818 --this-node
[ -n "$SLURM_JOB_GPUS" ] && set -- "$@" "--devices=$SLURM_JOB_GPUS"
[ -n "$SLURM_JOB_NODELIST" ] && set -- "$@" "--nodes=$SLURM_JOB_NODELIST"
cd / || exit 0
report=$(env -i PATH="$PATH" timeout --kill-after=5 30 nodevitals preflight --timeout 20s "$@" 2>&1)
status=$?
printf '%s\n' "$report" >&2
# Status 1 with the line of a defect of this node keeps the job away. All else lets it start, and
# must not drain nodes: an agent that restarts or a list that is none (status 2), a time limit
# (124), a broken installation (1, or 127).
[ "$status" = 1 ] || exit 0
case $report in *' problem '*) exit 1 ;; esac
exit 0
