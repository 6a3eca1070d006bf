# Sourced by .ci/run and .ci/extra: installing what a bare machine lacks.

# install_packages NAME...: install Debian packages; fails where this machine cannot.
install_packages() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    if [ -z "${apt_updated:-}" ]; then
        apt-get update -qq
        apt_updated=1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need PROGRAM PACKAGE: install PACKAGE unless PROGRAM is there.
need() {
    command -v "$1" >/dev/null || install_packages "$2" || {
        echo "$1 is missing and cannot be installed here: install the package $2" >&2
        return 1
    }
}

# A python that can make the environment: new enough, and with what venv needs.
python_works() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Make `python3` a Python of at least 3.11 that can make virtual environments.
provide_python() {
    local name
    python_works python3 && return
    install_packages python3 python3-venv ca-certificates || true
    python_works python3 && return
    for name in python3.14 python3.13 python3.12 python3.11; do
        python_works "$name" || install_packages "$name" "$name-venv" 2>/dev/null || continue
        if python_works "$name"; then
            shims=$(mktemp -d)
            ln -s "$("$name" -c 'import sys; print(sys.executable)')" "$shims/python3"
            export PATH="$shims:$PATH"
            return
        fi
    done
    echo "Python 3.11 or newer with venv is missing and cannot be installed here" >&2
    return 1
}

# Say whether C code can be built against `python3`, after trying to install what that needs. The
# compiled parts are optional: without them everything works, only slower.
provide_compiler() {
    local version
    version=$(python3 -c 'import sys; print("{}.{}".format(*sys.version_info))')
    compiler_works || install_packages gcc libc6-dev "python$version-dev" 2>/dev/null ||
        install_packages gcc libc6-dev python3-dev 2>/dev/null || true
    compiler_works || echo "no C compiler or Python headers here: the compiled parts are left out"
}

compiler_works() {
    local include
    include=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
    command -v gcc >/dev/null && echo '#include <Python.h>' |
        gcc -fsyntax-only -I"$include" -x c - 2>/dev/null
}
