# Shared by the scripts here; sourced, not run.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $1"
    shift
    local line
    for line in "$@"; do say "  $line"; done
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command with a limit in seconds, where the machine has `timeout` (macOS does not).
# At a terminal the command stays in the foreground, so that Ctrl-C reaches it; elsewhere the
# whole process group ends with it, so that no orphan keeps the log open.
limited() {
    local seconds=$1
    shift
    if ! have timeout; then
        "$@"
    elif [[ -t 0 && -t 2 ]]; then
        timeout --foreground --kill-after=10 "$seconds" "$@"
    else
        timeout --kill-after=10 "$seconds" "$@"
    fi
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "root is needed for: $*" "Run it as root yourself, or install sudo, then start again."
    fi
}
