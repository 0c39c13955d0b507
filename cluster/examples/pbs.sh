#!/bin/bash
# A sweep under PBS Pro: one agent on each of two nodes, put into the queue again until it is done.
# NOT TESTED HERE: written from PBS Pro's documentation. Adapt the marked lines, then: qsub pbs.sh
#PBS -N headsweep
#PBS -l select=2:ncpus=16:ngpus=4:mpiprocs=1
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe
# Two lines to adapt:
sweep=$PBS_O_WORKDIR/heads.toml
workspace=/scratch/$USER/runs

cd "$PBS_O_WORKDIR" || exit 2
# PBS sends SIGTERM at the end of the walltime and SIGKILL soon after, so the sweep is asked to checkpoint five minutes earlier.
limit=$((4 * 3600 - 300))
mpirun --hostfile "$PBS_NODEFILE" --map-by node --bind-to none -x PBS_JOBID headsweep run "$sweep" --workspace "$workspace" &
agents=$!
( sleep "$limit"; kill -USR2 "$agents" ) &
timer=$!
trap 'kill -USR2 "$agents"' TERM
wait "$agents"
code=$?
while kill -0 "$agents" 2> /dev/null; do wait "$agents"; code=$?; done  # the trap ends the first wait early
kill "$timer" 2> /dev/null

# 75: stopped early with everything saved. Any other failure is for a person.
if [[ $code == 75 ]]; then
  qsub -W depend=afterany:"$PBS_JOBID" "$PBS_O_WORKDIR/pbs.sh"
fi
exit "$code"
