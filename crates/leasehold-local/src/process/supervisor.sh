# Runs one server and makes sure that it does not outlive the process that started it.
#
#   supervisor.sh SIGNAL REMOVE COMMAND...
#
# Standard input is a pipe that the starter holds. Each line on it is the name of a signal to pass
# on. The end of it means that the starter let go or died, even by kill -9: the server then gets
# SIGNAL, and the directory REMOVE (if not empty) goes with it.
signal=$1 remove=$2
shift 2
abandoned=
trap 'abandoned=yes' USR1
trap 'kill -s "$signal" "$server" 2>/dev/null' TERM HUP INT
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(
    trap - TERM HUP INT
    while read -r word <&3; do kill -s "$word" "$server" 2>/dev/null; done
    # First the note, then the signal: the server's end must find the note.
    kill -s USR1 $$
    kill -s "$signal" "$server" 2>/dev/null
    tries=0
    while [ "$tries" -lt 60 ]; do
        sleep 1
        tries=$((tries + 1))
    done
    kill -s KILL "$server" 2>/dev/null
) &
watcher=$!
exec 3<&-
while :; do
    # A trap interrupts the wait, so look whether the server is really gone.
    wait "$server"
    status=$?
    kill -s 0 "$server" 2>/dev/null || break
done
kill "$watcher" 2>/dev/null
if [ -n "$abandoned" ] && [ -n "$remove" ]; then rm -rf "$remove"; fi
exit "$status"
