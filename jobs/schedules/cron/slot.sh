#!/bin/sh
# Run a command of the mirror in its slot of a schedule.
#
#   slot.sh LOCK SECONDS ATTEMPTS COMMAND...
#
# - While another slot has the file LOCK, the command is not started.
# - After SECONDS the command gets SIGTERM, ends in order, and the next slot resumes.
# - Exit status 3 is tried again, up to ATTEMPTS in all, while there is time.
#
# Prints nothing unless a person is needed: then the command's output, and a line that says why. The exit status is the
# command's last one; 0 if another slot was active.
set -u

# How long the command has to end after SIGTERM: `mirror run` takes 20 s at most.
grace_s=60
pause_s=${SLOT_PAUSE_S:-60}

lock=$1 limit_s=$2 attempts=$3
shift 3
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT

# The command inherits the file, and with it the lock: should this shell be killed, the lock lasts as long as the run.
# A new one is for this user alone: who may read a file may lock it.
(umask 077 && : >>"$lock") || exit 1
exec 9>>"$lock" || exit 1
flock --nonblock 9 || exit 0

until_s=$(($(date +%s) + limit_s))
while :; do
    left_s=$((until_s - $(date +%s)))
    timeout --preserve-status --signal=TERM --kill-after="$grace_s" "$((left_s > 0 ? left_s : 1))" "$@" >"$output" 2>&1
    status=$?
    attempts=$((attempts - 1))
    [ "$status" -eq 3 ] && [ "$attempts" -gt 0 ] && [ $((until_s - $(date +%s))) -gt "$pause_s" ] || break
    sleep "$pause_s"
done

case $status in
0) exit 0 ;;
2) why='wrong usage: it will fail in each slot' ;;
3) why='ran, but not everything is complete' ;;
4) why='a flow is held, or MirrorMaker 2 copies again: no slot copies it until a person has decided' ;;
130 | 143) why="ended after $limit_s s, or by a shutdown; the next slot resumes" ;;
*) why='could not run, or was killed' ;;
esac
cat "$output"
echo "slot.sh: exit status $status: $why: $*"
exit "$status"
