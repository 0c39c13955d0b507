#!/usr/bin/env bash
# A throw-away Slurm cluster on one machine, for tests: munged, slurmctld and one slurmd a node, all their files under DIR.
# A node is a PID, host-name and mount namespace, so killing it ends its daemon and every process of its jobs at once, as
# a power cut would. Its GPUs are character devices that do nothing. Needs root and the packages of cluster/packages.txt.
#
#   test_cluster.sh DIR start [--nodes 3] [--cpus 4] [--gpus 2] [--while PID]
#                                     from nothing to all nodes idle in 1 to 2 s; ends by itself when process PID does
#   test_cluster.sh DIR stop          ends it and removes DIR
#   test_cluster.sh DIR kill-node I | start-node I                 node I (named nI, from n0) crashes | is there again
#   test_cluster.sh DIR kill-daemon I | start-daemon I             its slurmd alone, beside running jobs
#   test_cluster.sh DIR freeze-node I | thaw-node I                every process on it stands still (nobody hears of it) | goes on
#   test_cluster.sh DIR stop-controller | kill-controller | start-controller
#                                     slurmctld ends in order | by SIGKILL, so it forgets its last seconds | starts again
#   test_cluster.sh DIR status
#
# Slurm's commands reach it with SLURM_CONF=DIR/slurm.conf. Partitions: main (the default), and scavenge, whose jobs
# those of main preempt: SIGTERM, 15 s later requeued.
set -u
shopt -s extglob
self=$(readlink -f "$0")
mark=.headsweep-test-cluster

fail() { echo "test_cluster.sh: $*" >&2; exit 1; }
usage() { sed -n '2,18s/^# \{0,1\}//p' "$self" >&2; exit 2; }

[[ $# -ge 2 ]] || usage
dir=$(readlink -m "$1") command=$2
shift 2
export SLURM_CONF=$dir/slurm.conf
tick() { sleep 0.05; }
alive() { [[ -n "$1" ]] && kill -0 "$1" 2> /dev/null; }

# --- The supervisor: parent of all daemons, which the kernel kills should it die ---------------------------------------

daemon() { # LOG COMMAND…: in the background; its pid is in $!
  local log=$dir/log/$1
  shift
  setpriv --pdeathsig KILL "$@" < /dev/null >> "$log" 2>&1 &
}

declare -A node_pid
controller= munged=

start-controller() {
  alive "$controller" && return
  daemon slurmctld.out slurmctld -D -i -f "$SLURM_CONF"
  controller=$!
}
kill-controller() { kill -KILL "$controller" 2> /dev/null; wait "$controller" 2> /dev/null; }
stop-controller() { finish "$controller"; }

start-node() {
  alive "${node_pid[$1]:-}" && return
  mkdir -p "$dir/spool.n$1" "$dir/tmp.n$1"
  daemon "n$1.out" unshare --uts --pid --fork --kill-child=KILL --mount-proc "$self" "$dir" node "$1"
  node_pid[$1]=$!
}
kill-node() { kill -KILL "${node_pid[$1]}" 2> /dev/null; wait "${node_pid[$1]}" 2> /dev/null; }
kill-daemon() {
  local init
  init=$(pgrep -P "${node_pid[$1]}") && kill -KILL "$(pgrep -P "$init" -x slurmd)"
}
start-daemon() { : > "$dir/start-daemon.$1"; }
signal-node() { # I SIGNAL
  local space process
  space=$(readlink "/proc/$(pgrep -P "${node_pid[$1]}")/ns/pid")
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/ns/pid" 2> /dev/null) == "$space" ]] && kill -"$2" "${process#/proc/}" 2> /dev/null
  done
}
freeze-node() { signal-node "$1" STOP; signal-node "$1" STOP; } # again, for what was started meanwhile
thaw-node() { signal-node "$1" CONT; }

finish() { # PID: asked to end, killed after 3 s
  local i
  alive "$1" || return 0
  kill -TERM "$1" 2> /dev/null
  for ((i = 0; i < 60; i++)); do alive "$1" || break; tick; done
  kill -KILL "$1" 2> /dev/null
  wait "$1" 2> /dev/null
}

end-all() {
  local i
  for i in "${!node_pid[@]}"; do kill-node "$i"; done
  finish "$controller"
  finish "$munged"
  rm -rf "$dir"
}

start-munged() {
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
  chmod 400 "$dir/munge.key"
  daemon munged.out munged --foreground --force --num-threads=2 --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
    --pid-file="$dir/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed"
  munged=$!
  for ((i = 0; i < 200; i++)); do [[ -S $dir/munge.socket ]] && return; tick; done
  return 1
}

wait-for-nodes() { # until all are idle
  local idle=0
  for ((i = 0; i < 400; i++)); do
    alive "$controller" || return 1
    idle=$(sinfo -h -N -p main -t idle -o %N 2> /dev/null | sort -u | wc -l)
    [[ $idle == "$1" ]] && return 0
    tick
  done
  echo "only $idle of $1 nodes are idle" >&2
  return 1
}

serve() { # NODES PID
  local number request argument
  trap end-all EXIT
  trap 'exit 0' TERM INT HUP
  echo $$ > "$dir/supervisor.pid"
  exec 3<> "$dir/commands"
  if start-munged && start-controller; then
    for ((i = 0; i < $1; i++)); do start-node "$i"; done
    wait-for-nodes "$1" && : > "$dir/ready"
  fi
  if [[ ! -e $dir/ready ]]; then
    cat "$dir"/log/*.out > "$dir/failed" 2> /dev/null
    sleep 2 # for whoever waits to read it
    exit 1
  fi
  while [[ -e $dir/$mark ]]; do
    [[ $2 == 0 ]] || alive "$2" || exit 0
    read -t 0 <&3 || { sleep 0.1; continue; } # a read that times out would lose half a line
    read -r number request argument <&3
    case $request in
      stop) exit 0 ;;
      *) "$request" "$argument"; : > "$dir/done.$number" ;;
    esac
  done
}

# The first process of a node's namespaces: its daemon, again and again when it is asked for.
node() {
  hostname "n$1"
  mount --bind "$dir/hosts" /etc/hosts
  mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup 2> /dev/null || mount -t tmpfs none /sys/fs/cgroup
  while :; do
    slurmd -D -N "n$1" -f "$SLURM_CONF"
    until [[ -e $dir/start-daemon.$1 ]]; do tick; done
    rm -f "$dir/start-daemon.$1"
  done
}

# --- What people and tests call ----------------------------------------------------------------------------------------

free_ports() { # COUNT: the first of so many ports that nobody listens on
  local try port base
  for ((try = 0; try < 100; try++)); do
    base=$((20000 + RANDOM % 10000))
    for ((port = base; port < base + $1; port++)); do
      (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null && continue 2
    done
    echo "$base"
    return
  done
  fail "no free ports"
}

configure() { # NODES CPUS GPUS
  local port host last=$(($1 - 1))
  port=$(free_ports $(($1 + 1)))
  host=$(hostname -s)
  mkdir -p "$dir/state" "$dir/log" "$dir/dev"
  chmod 755 "$dir"
  : > "$dir/$mark"
  mkfifo "$dir/commands"
  {
    echo "127.0.0.1 localhost $host"
    for ((i = 0; i <= last; i++)); do echo "127.0.0.1 n$i"; done
  } > "$dir/hosts"
  echo "AutoDetect=off" > "$dir/gres.conf"
  local gres=
  if [[ $3 -gt 0 ]]; then
    for ((i = 0; i < $3; i++)); do mknod "$dir/dev/gpu$i" c 1 3 || fail "cannot make device files here"; done
    echo "NodeName=n[0-$last] Name=gpu Type=fake File=$dir/dev/gpu[0-$(($3 - 1))]" >> "$dir/gres.conf"
    gres=" Gres=gpu:fake:$3"
  fi
  # cred_expire: how long a requeued job waits, so that no node refuses it for the end of its earlier run. Two minutes if not given,
  # or if less than 5; it must outlast the start of a job step.
  # slurmd claims CPUs that this machine may not have (config_overrides), tracks processes without cgroups, and gives each
  # node a /tmp of its own for PMIx (TmpFS). SlurmdTimeout: a dead node is noticed after about 14 s.
  cat > "$SLURM_CONF" << CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=4
MessageTimeout=10
KillWait=5
MinJobAge=300
MaxArraySize=64
JobRequeue=1
ReturnToService=2
GresTypes=gpu
CONF
  for ((i = 0; i <= last; i++)); do
    echo "NodeName=n$i NodeAddr=127.0.0.1 Port=$((port + 1 + i)) CPUs=$2 SocketsPerBoard=1 CoresPerSocket=$2" \
      "ThreadsPerCore=1 RealMemory=4000$gres State=UNKNOWN" >> "$SLURM_CONF"
  done
  cat >> "$SLURM_CONF" << CONF
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 MaxTime=INFINITE DefaultTime=10 State=UP
PartitionName=scavenge Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=15 MaxTime=INFINITE DefaultTime=10 State=UP
CONF
}

start() {
  local nodes=3 cpus=4 gpus=2 owner=0 program i
  while [[ $# -ge 2 ]]; do
    [[ $2 == +([0-9]) ]] || fail "$1 $2: not a number"
    case $1 in
      --nodes) nodes=$2 ;;
      --cpus) cpus=$2 ;;
      --gpus) gpus=$2 ;;
      --while) owner=$2 ;;
      *) usage ;;
    esac
    shift 2
  done
  [[ $# == 0 ]] || usage
  [[ $(id -u) == 0 ]] || fail "needs root"
  for program in munged slurmctld slurmd sinfo setpriv unshare; do
    [[ -n $(type -P "$program") ]] || fail "no $program: cluster/setup.sh --tests"
  done
  if [[ -e $dir/$mark ]]; then
    stop # a left-over, or the one that runs
  elif [[ -e $dir ]] && [[ -n $(ls -A "$dir") ]]; then
    fail "$dir holds something else"
  fi
  mkdir -p "$dir"
  configure "$nodes" "$cpus" "$gpus"
  setsid "$self" "$dir" serve "$nodes" "$owner" < /dev/null > "$dir/log/supervisor.out" 2>&1 &
  for ((i = 0; i < 800; i++)); do
    [[ -e $dir/ready ]] && { echo "export SLURM_CONF=$SLURM_CONF"; return 0; }
    if [[ -e $dir/failed ]]; then
      cat "$dir/failed" >&2
      fail "the cluster did not come up"
    fi
    tick
  done
  fail "the cluster did not come up within 40 s"
}

stop() {
  local supervisor i
  [[ -e $dir/$mark ]] || return 0
  supervisor=$(cat "$dir/supervisor.pid" 2> /dev/null)
  if alive "$supervisor"; then
    kill -TERM "$supervisor"
    for ((i = 0; i < 400; i++)); do alive "$supervisor" || break; tick; done
    kill -KILL "$supervisor" 2> /dev/null
  fi
  rm -rf "$dir"
}

ask() { # COMMAND [NODE]: of the supervisor, and waits until it is done
  local number=$$ i
  [[ -e $dir/ready ]] && alive "$(cat "$dir/supervisor.pid" 2> /dev/null)" || fail "no cluster runs in $dir"
  echo "$number $1 ${2:-}" > "$dir/commands"
  for ((i = 0; i < 200; i++)); do
    [[ -e $dir/done.$number ]] && { rm -f "$dir/done.$number"; return 0; }
    tick
  done
  fail "$1 was not done within 10 s"
}

case $command in
  start) start "$@" ;;
  stop) stop ;;
  status) sinfo -N -l && squeue -a ;;
  kill-node | start-node | kill-daemon | start-daemon | freeze-node | thaw-node)
    [[ ${1:-} == +([0-9]) && -d $dir/spool.n$1 ]] || fail "$command: which node? a number from 0"
    ask "$command" "$1"
    ;;
  stop-controller | kill-controller | start-controller) ask "$command" ;;
  serve) serve "$@" ;; # for itself
  node) node "$@" ;;   # for itself
  *) usage ;;
esac
