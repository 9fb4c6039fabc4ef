# Makes a folder and takes it away when the program that asked for it has ended. Argument 1: the folder, an absolute path.
#
# Standard input is a pipe to which nobody writes: reading it ends when the program has closed it or has ended, by whatever
# cause. The folder is made here and not by the program, so that there is no moment at which it exists without its guard.
trap '' HUP INT QUIT TERM PIPE
mkdir -m 700 -- "$1" || exit 1
echo made
exec >/dev/null 2>&1
while read -r _; do :; done

if [ -e /proc/self/cwd ]; then
    # The processes that work in the folder: postmasters, their backends, the helpers of initdb. A number in a lock file would
    # not do: it may belong to somebody else by now, or to a process that has ended and was not waited for yet. Somebody's
    # shell may look at the folder; it is left alone.
    members() {
        ls -l /proc/[0-9]*/cwd | grep -F -- " -> $1/" | sed 's|^.*/proc/\([0-9]*\)/cwd -> .*$|\1|' | while read -r pid; do
            case $(readlink "/proc/$pid/exe") in
            */postgres | */"postgres (deleted)") echo "$pid" ;;
            esac
        done
    }
else
    members() {
        for file in "$1"/*/data/postmaster.pid; do
            [ -f "$file" ] && read -r pid <"$file" && ps -p "$pid" -o command= | grep -qF -- "$1/" && echo "$pid"
        done
    }
fi

# A server that was killed has left its System V segment, named in line 7 of its lock file (src/include/utils/pidfile.h).
# initdb runs servers as well, in the folder of a template.
remove_segments() {
    for file in "$1"/*/data/postmaster.pid "$1"/*/postmaster.pid; do
        [ -f "$file" ] || continue
        segment=$(sed -n '7s/^ *[0-9][0-9]* *//p' "$file")
        [ -n "$segment" ] && ipcrm -m "$segment"
    done
}

# Most end by themselves: on Linux the kernel tells a postmaster to, and the helpers of initdb see the end of their input. The
# others are told to after half a second. A postmaster gets some seconds to stop: it kills backends that do not react after five (SIGKILL_CHILDREN_AFTER_SECS). While
# anything is written into the folder its removal may fail, so it is tried again until it has succeeded. The waits are bounded
# by the clock: on a busy machine a turn takes much longer than its pause.
begin=$(date +%s)
turn=0
while [ $(($(date +%s) - begin)) -lt 90 ]; do
    pids=$(members "$1")
    if [ -z "$pids" ]; then
        remove_segments "$1"
        rm -rf -- "$1"
        [ -e "$1" ] || exit 0
    elif [ $(($(date +%s) - begin)) -ge 8 ]; then
        kill -KILL $pids
    elif [ $((turn % 20)) -eq 10 ]; then
        kill -QUIT $pids
    fi
    turn=$((turn + 1))
    sleep 0.05
done
