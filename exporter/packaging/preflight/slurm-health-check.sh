#!/bin/sh
# HealthCheckProgram of slurmd (slurm.conf: HealthCheckInterval=300, HealthCheckNodeState=IDLE): takes
# an idle node with a defect out of service. It is no prolog: here a command of Slurm is allowed.
# https://slurm.schedmd.com/slurm.conf.html
# With --devices all, what a job left on an accelerator counts, as no job is on an idle node.
# Add the folders of nodevitals and of scontrol where they are others.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
report=$(cd / && env -i PATH="$PATH" timeout --kill-after=5 50 nodevitals preflight \
  --devices all --timeout 40s)
[ $? = 1 ] || exit 0
reason=$(printf '%s\n' "$report" | grep -m 1 ' problem ' | tr -s ' "' ' ' | cut -c 1-120)
[ -n "$reason" ] || exit 0 # a broken installation has status 1, too
name=${SLURMD_NODENAME:-$(hostname -s)}
node=$(scontrol show node "$name" --oneliner) || exit 0
state=${node#* State=}
# slurmd runs this on drained nodes as well, whose reason an update would replace with its author. On
# a node that is no longer idle, the processes are those of a job that has started meanwhile.
case ${state%% *} in
*DRAIN* | *DOWN* | *FAIL*) exit 0 ;;
IDLE*) ;;
*) exit 0 ;;
esac
case $node in *" Reason="*) exit 0 ;; esac
scontrol update "NodeName=$name" State=DRAIN "Reason=preflight: ${reason% }"
