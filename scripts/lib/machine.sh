# Puts what the scripts need on this machine, and only what is missing. Sourced, not run.
#
# Nothing here starts a database: Leasehold starts private ones of its own, on free ports, and a
# default cluster on port 5432 would only stand in somebody's way.
# shellcheck shell=bash

# ---- What is needed -----------------------------------------------------------------------------
# The module of the Python example, and the Debian package that has it.
PYTHON_MODULE=psycopg2
PYTHON_PACKAGE=python3-psycopg2

# need_machine dev|test
need_machine() {
    case $(uname -s) in
        Linux) need_debian_packages "$1" ;;
        Darwin) need_brew_packages "$1" ;;
        *) die "this script knows Debian and macOS" "Install PostgreSQL 15 or newer, PgBouncer, Python 3, Node.js and Rust yourself, then use cargo." ;;
    esac
    need_cargo
    if [[ $1 == test ]]; then
        need_cargo_component fmt rustfmt
        need_cargo_component clippy clippy
        need_example_packages
    fi
}

has_postgres_server() {
    local bin
    if [[ -n ${PG_BIN:-} && -x $PG_BIN/initdb ]] || have initdb; then return 0; fi
    for bin in /usr/lib/postgresql/*/bin/initdb; do
        [[ -x $bin ]] && return 0
    done
    return 1
}

# The Python that can run the example: the first on the path, or the system's, whose packages apt
# brings. Prints nothing when there is none.
example_python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if have "$candidate" && "$candidate" -c "import $PYTHON_MODULE" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
}

# ---- Debian -------------------------------------------------------------------------------------
need_debian_packages() {
    local wanted=()
    has_postgres_server || wanted+=(postgresql)
    have cc || wanted+=(gcc libc6-dev)
    if [[ $1 == test ]]; then
        have pgbouncer || [[ -x /usr/sbin/pgbouncer ]] || wanted+=(pgbouncer)
        have python3 || wanted+=(python3)
        if [[ -d examples/python && -z $(example_python) ]]; then wanted+=("$PYTHON_PACKAGE"); fi
        if [[ -d examples/node ]]; then
            have node || wanted+=(nodejs)
            have npm || wanted+=(npm)
        fi
    fi
    [[ ${#wanted[@]} == 0 ]] && return 0
    have apt-get || die "missing on this machine: ${wanted[*]}" \
        "Those are Debian's package names; install the same with your package manager."
    say "installing: ${wanted[*]}"
    apt_install "${wanted[@]}"
}

# Installs without starting a service and without making Debian's default cluster. Both settings
# are put back afterwards.
apt_install() {
    local quiet_cluster=/etc/postgresql-common/createcluster.d/zz-leasehold.conf
    local no_services=/usr/sbin/policy-rc.d
    local made_policy=no status=0
    as_root mkdir -p "${quiet_cluster%/*}"
    printf 'create_main_cluster = false\n' | as_root tee "$quiet_cluster" >/dev/null
    if [[ ! -e $no_services ]]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$no_services" >/dev/null
        as_root chmod 755 "$no_services"
        made_policy=yes
    fi
    {
        as_root env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get update -q &&
            as_root env DEBIAN_FRONTEND=noninteractive timeout 900 \
                apt-get install -q -y --no-install-recommends "$@"
    } >&2 || status=$?
    as_root rm -f "$quiet_cluster"
    if [[ $made_policy == yes ]]; then as_root rm -f "$no_services"; fi
    [[ $status == 0 ]] || die "apt-get could not install: $*" \
        "Its own words are above. Install these packages, then start again."
    # The package enables its service for the next boot; nobody here uses it.
    if [[ " $* " == *" pgbouncer "* && -d /run/systemd/system ]]; then
        as_root systemctl disable --quiet pgbouncer.service || true
    fi
}

# ---- macOS --------------------------------------------------------------------------------------
need_brew_packages() {
    local wanted=() keg
    have brew || die "Homebrew is missing" "See https://brew.sh, then start again."
    keg="$(brew --prefix)/opt/postgresql@16/bin"
    [[ -x $keg/initdb ]] && PATH="$keg:$PATH"
    has_postgres_server || wanted+=(postgresql@16)
    if [[ $1 == test ]]; then
        have pgbouncer || wanted+=(pgbouncer)
        have python3 || wanted+=(python)
        have node || wanted+=(node)
    fi
    if [[ ${#wanted[@]} != 0 ]]; then
        say "installing: ${wanted[*]}"
        brew install "${wanted[@]}" >&2
        PATH="$keg:$PATH"
    fi
    export PATH
}

# ---- Rust ---------------------------------------------------------------------------------------
rust_needed() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

cargo_is_new_enough() {
    local found
    found=$(cargo --version 2>/dev/null | awk '{print $2}') || return 1
    [[ -n $found && $(printf '%s\n%s\n' "$(rust_needed)" "$found" | sort -V | head -n1) == "$(rust_needed)" ]]
}

need_cargo() {
    # A rustup that was installed in this very shell is not on its path yet.
    [[ -d ${CARGO_HOME:-$HOME/.cargo}/bin ]] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
    cargo_is_new_enough && return 0
    if ! have rustup && have apt-cache && apt-cache policy rustup | grep -q 'Candidate: [0-9]'; then
        say "installing: rustup"
        apt_install rustup
    fi
    if have rustup; then
        say "installing a Rust toolchain, $(rust_needed) or newer"
        limited 900 rustup toolchain install stable --profile minimal -c rustfmt -c clippy >&2 || true
        export RUSTUP_TOOLCHAIN=stable
        hash -r
    fi
    cargo_is_new_enough || die "Rust $(rust_needed) or newer is needed; found: $(cargo --version 2>/dev/null || echo none)" \
        "Install rustup as https://rustup.rs says, open a new shell, then start again." \
        "Debian's own cargo package is too old."
}

need_cargo_component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    if have rustup; then limited 300 rustup component add "$2" >&2 || true; fi
    cargo "$1" --version >/dev/null 2>&1 || die "cargo $1 is missing" "Run: rustup component add $2"
}

# ---- What the examples import -------------------------------------------------------------------
need_example_packages() {
    local python
    if [[ -d examples/python ]]; then
        python=$(example_python)
        [[ -n $python ]] || die "the Python example needs the module $PYTHON_MODULE" \
            "Run: python3 -m pip install $PYTHON_MODULE-binary"
        export LEASEHOLD_PYTHON=$python
    fi
    # `npm ci` leaves this file behind; older than the lock file means that the lock changed.
    if [[ -f examples/node/package-lock.json &&
        examples/node/package-lock.json -nt examples/node/node_modules/.package-lock.json ]]; then
        say "installing the packages of examples/node"
        (cd examples/node && limited 300 npm ci --no-audit --no-fund --silent >&2) ||
            die "npm ci failed in examples/node" "Its own words are above."
        touch examples/node/node_modules/.package-lock.json
    fi
}
